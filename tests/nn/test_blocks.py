"""Blocks against the equations they are written after, in plain float64 torch."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import spectral_norm
from xcbench.methods.astec import AstecEncoder, AstecResidual

from xcbench.nn import (
    ComponentAttention,
    DocumentEncoder,
    GatedBlock,
    GatedSum,
    ResidualBlock,
    SpectralWeight,
    relu_dropout,
)
from xcbench.nn.dropout import start_step

D = 6


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def scattered(module):
    """The module with parameters away from their starting values, where most equations are trivially true."""
    with torch.no_grad():
        for p in module.parameters():
            p += torch.randn_like(p) * 0.3
    return module


def gradients(module, inputs, weights):
    """Output of a module, and gradients of a fixed weighting of it with respect to inputs and parameters."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    start_step(seed=5, step=9)
    out = module(*inputs)
    (out * weights.to(out.dtype)).sum().backward()
    return [out, *(x.grad for x in inputs), *(p.grad for p in module.parameters())]


def agree(ours, reference, tolerance=1e-5):
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)


def test_identity_survives_the_spectral_norm_and_training_steps_keep_it():
    weight = SpectralWeight(torch.eye(D))
    for _ in range(3):
        torch.testing.assert_close(weight(), torch.eye(D))


def test_spectral_weight_has_norm_one_after_some_steps():
    weight = SpectralWeight(torch.randn(9, 5) * 7)
    for _ in range(200):
        normed = weight()
    assert torch.linalg.matrix_norm(normed, 2).item() == pytest.approx(1, abs=1e-5)


def test_spectral_weight_equals_torch_in_value_and_gradient():
    start = torch.randn(7, 5)
    g = torch.randn(7, 5)
    x = torch.eye(5)
    ours = SpectralWeight(start.clone())
    theirs = nn.Linear(5, 7, bias=False)
    theirs.weight.data = start.clone()
    spectral_norm(theirs)
    theirs.weight_u.copy_(ours.u)
    theirs.weight_v.copy_(ours.v)
    for mode in (True, True, False):  # two training steps, the second from where the first left off; then eval
        ours.train(mode)
        theirs.train(mode)
        ours.raw.grad = theirs.weight_orig.grad = None
        normed = ours()
        expected = theirs(x).T
        normed.backward(g)
        expected.backward(g)
        torch.testing.assert_close(normed, expected)
        torch.testing.assert_close(ours.raw.grad, theirs.weight_orig.grad)


@pytest.mark.parametrize("training", [True, False])
def test_a_gated_spectral_weight_is_the_same_in_plain_torch(training):
    ours = SpectralWeight(torch.randn(7, 5)).train(training)
    gate = torch.randn(7, requires_grad=True)
    g = torch.randn(7, 5)
    plain = copy.deepcopy(ours).double()
    plain_gate = gate.detach().double().requires_grad_()
    for _ in range(2):
        for weight, gating in ((ours, gate), (plain, plain_gate)):
            gating.grad = weight.raw.grad = None
            weight(gating).backward(g.to(gating.dtype))
        agree(
            [ours(gate), ours.raw.grad, gate.grad, ours.u],
            [plain(plain_gate), plain.raw.grad, plain_gate.grad, plain.u],
        )


def test_decaf_block_at_the_start_halves_relu_and_input():
    block = GatedBlock(D, 0.5).eval()
    r0 = torch.randn(4, D)
    torch.testing.assert_close(block(r0), 0.5 * torch.relu(r0) + 0.5 * r0)


def test_decaf_classifier_at_the_start():
    block = GatedBlock(D, 0.5).eval()
    combine = GatedSum(D).eval()
    Ez = torch.randn(4, D)
    torch.testing.assert_close(combine(Ez, block, Ez).full(), 0.5 * Ez + 0.5 * block(Ez))


def test_eclare_block_at_the_start_adds_relu():
    block = ResidualBlock(D, 0.2).eval()
    r0 = torch.randn(4, D)
    torch.testing.assert_close(block(r0), torch.relu(r0) + r0)


def test_astec_residual_at_the_start_adds_relu():
    f = torch.randn(4, D)
    torch.testing.assert_close(AstecResidual(D, 0.5).eval()(f), f + torch.relu(f))


def test_document_encoders_end_as_their_papers_say():
    Ex = torch.randn(4, D)
    decaf = DocumentEncoder(GatedBlock(D, 0.5)).eval()
    torch.testing.assert_close(decaf(Ex), torch.relu(0.5 * torch.relu(Ex) + 0.5 * Ex))
    torch.testing.assert_close(AstecEncoder(D, 0.5).eval()(Ex), Ex + torch.relu(Ex))


def plain_decaf(m, r0):
    W = m.R()
    return torch.sigmoid(m.a) * (relu_dropout(r0, m.dropout, m.training) @ W.T + m.bias) + torch.sigmoid(m.c) * r0


def plain_eclare(m, r0):
    return r0 + m.lam * (relu_dropout(r0, m.dropout, m.training) @ m.R().T + m.bias)


@pytest.mark.parametrize(("block", "plain"), [(GatedBlock, plain_decaf), (ResidualBlock, plain_eclare)])
@pytest.mark.parametrize("rows", [1, 700, 2600])  # one piece of rows and several
def test_fused_blocks_equal_their_equations_with_dropout_and_gradients(block, plain, rows):
    ours = scattered(block(D, 0.3))
    reference = copy.deepcopy(ours).double()
    reference.forward = lambda r0: plain(reference, r0)
    r0 = torch.randn(rows, D)
    weights = torch.randn(rows, D)
    agree(gradients(ours, [r0], weights), gradients(reference, [r0.double()], weights), 2e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gated_sum_equals_its_equation(dtype):
    class Combined(nn.Module):
        def __init__(self, plain):
            super().__init__()
            self.block = GatedBlock(D, 0.3)
            self.combine = GatedSum(D)
            self.plain = plain

        def forward(self, z2, r0):
            if not self.plain:
                return self.combine(z2, self.block, r0).full()
            gates = torch.sigmoid(self.combine.alpha), torch.sigmoid(self.combine.beta)
            return gates[0] * z2 + gates[1] * plain_decaf(self.block, r0)

    ours = scattered(Combined(plain=False))
    reference = copy.deepcopy(ours).double()
    reference.plain = True
    z2 = torch.randn(300, D)
    r0 = torch.randn(300, D)
    weights = torch.randn(300, D)
    ours = gradients(ours.to(dtype), [z2.to(dtype), r0.to(dtype)], weights)
    agree(ours, gradients(reference, [z2.double(), r0.double()], weights), 2e-4)


def test_a_constant_input_gets_no_gradient_and_the_block_still_learns():
    block = scattered(GatedBlock(D, 0.0))
    r0 = torch.randn(5, D)
    learning = copy.deepcopy(block)
    block(r0).square().sum().backward()
    learning(r0.requires_grad_()).square().sum().backward()
    agree([p.grad for p in block.parameters()], [p.grad for p in learning.parameters()])


def plain_attention(m, *S):
    """The paper's form: T applied to every component of every label."""
    A = m.A()
    T = m.T()
    t = torch.cat([torch.relu(s) @ T.T + m.bias for s in S], 1)
    alpha = torch.softmax(t @ A.T, 1)
    return sum(alpha[:, j : j + 1] * s for j, s in enumerate(S))


@pytest.mark.parametrize("components", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_with_multiplied_maps_equals_the_plain_form(components, dtype):
    ours = scattered(ComponentAttention(components, D, dropout=0.0))
    reference = copy.deepcopy(ours).double()
    reference.forward = lambda *S: plain_attention(reference, *S)
    S = [torch.randn(300, D) * 2 for _ in range(components)]
    weights = torch.randn(300, D)
    ours = gradients(ours.to(dtype), [s.to(dtype) for s in S], weights)
    agree(ours, gradients(reference, [s.double() for s in S], weights), 1e-3)


def test_fused_attention_drops_what_the_torch_form_drops():
    ours = scattered(ComponentAttention(3, D, dropout=0.4))
    S = [torch.randn(300, D) for _ in range(3)]
    weights = torch.randn(300, D)
    reference = gradients(copy.deepcopy(ours).double(), [s.double() for s in S], weights)
    agree(gradients(ours, S, weights), reference, 1e-3)


def test_attention_weights_add_up_to_one():
    attention = scattered(ComponentAttention(3, D, 0.2)).eval()
    S = [torch.randn(8, D) for _ in range(3)]
    alpha = attention.weights(*S)
    torch.testing.assert_close(alpha.sum(1), torch.ones(8))
    torch.testing.assert_close(attention(*S), torch.einsum("nj,jnd->nd", alpha, torch.stack(S)))


def test_attention_says_how_many_components_it_expects():
    with pytest.raises(ValueError, match="3 components was given 2"):
        ComponentAttention(3, D, 0.2)(torch.zeros(1, D), torch.zeros(1, D))
