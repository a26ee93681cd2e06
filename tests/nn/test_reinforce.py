"""The score-function estimator: its mean is the gradient, its draws follow the probabilities."""

import itertools

import torch
from torch import Tensor

from regard.nn.reinforce import MovingBaseline, draw, entropy, log_probability, returns, score_function


def test_choices_come_as_often_as_they_are_probable() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.0, 0.2])
    drawn = draw(probabilities.expand(20_000, -1))
    shares = torch.bincount(drawn, minlength=4) / len(drawn)
    assert shares[2] == 0
    assert (shares - probabilities).abs().max() < 4 * 0.5 / len(drawn) ** 0.5


def test_draws_are_those_of_the_seed() -> None:
    probabilities = torch.rand(50, 7)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(draw(probabilities))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def rewards_of(choices: Tensor) -> Tensor:
    """What two choices in turn earn, the second depending on both."""
    first, second = choices.unbind(-1)
    return torch.stack([first.double().sin(), (first * 2 + second).double().cos()], dim=-1)


def test_the_mean_of_all_estimates_is_the_gradient_whatever_the_baseline() -> None:
    logits = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    every = torch.tensor(list(itertools.product(range(3), repeat=2)))  # (choices, 2)
    probabilities = logits.softmax(-1)
    chances = log_probability(probabilities.expand(len(every), -1, -1), every)
    expected = (chances.sum(1).exp() * rewards_of(every).sum(1)).sum()
    [exact] = torch.autograd.grad(expected, logits, retain_graph=True)
    for baseline in (torch.zeros(2), torch.tensor([3.0, -1.0])):
        mean = sum(
            chances[row].sum().exp().detach()
            * torch.autograd.grad(score_function(chances[row], returns(rewards_of(every[row : row + 1]))[0] - baseline),
                                  logits, retain_graph=True)[0]
            for row in range(len(every)))
        torch.testing.assert_close(-mean, exact)


def test_the_entropy_is_largest_for_equal_chances_and_has_a_gradient_at_zero() -> None:
    certain = torch.tensor([1.0, 0.0], requires_grad=True)
    found = entropy(torch.stack([certain, torch.tensor([0.5, 0.5])]))
    torch.testing.assert_close(found, torch.tensor([0.0, 2.0]).log1p() * torch.tensor([0.0, 0.630929753]))
    found[0].backward()
    assert certain.grad is not None
    assert certain.grad.isfinite().all()


def test_the_baseline_begins_with_the_first_rewards_and_follows_the_later_ones() -> None:
    baseline, real = MovingBaseline(), torch.tensor([[True, True, False]])
    assert baseline.value() == 0
    baseline.take(torch.tensor([[2.0, 4.0, 100.0]]), real)
    torch.testing.assert_close(baseline.value(), torch.tensor(3.0))
    for _ in range(100):
        baseline.take(torch.tensor([[-1.0, -1.0, 0.0]]), real)
    torch.testing.assert_close(baseline.value(), torch.tensor(-1.0), atol=1e-3, rtol=0)


def test_a_batch_that_is_not_finite_or_empty_leaves_the_baseline_as_it_is() -> None:
    baseline = MovingBaseline()
    baseline.take(torch.tensor([1.0]), torch.tensor([True]))
    before = {name: tensor.clone() for name, tensor in baseline.state_dict().items()}
    baseline.take(torch.tensor([torch.nan]), torch.tensor([True]))
    baseline.take(torch.tensor([5.0]), torch.tensor([False]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in baseline.state_dict().items())


def test_processes_that_share_a_batch_have_the_baseline_of_all_its_words() -> None:
    rewards, real = torch.randn(4, 3), torch.rand(4, 3) < 0.7
    rewards[1] = 5.0
    whole = MovingBaseline()
    whole.take(rewards, real)
    for mine in (slice(1), slice(1, 4)):
        part = MovingBaseline()
        part.total = lambda sums: torch.stack([(rewards * real).sum(), real.sum().float()])
        part.take(rewards[mine], real[mine])
        torch.testing.assert_close(part.value(), whole.value())
