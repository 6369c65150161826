"""Text to TF-IDF rows: one vocabulary for points and labels, kept so that new text can be encoded later."""


class TextEncoder:
    """Turns titles into rows of X."""
