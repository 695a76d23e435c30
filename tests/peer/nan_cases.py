"""The steps of tests/nan_benchmark in Python: the same names, numbers and formats, with explicit casts
where a region or a policy of mantissa's makes them. A case is (faulty x, healthy x, step), where the step
takes x and whether it is to fail.
"""

import math

import torch
import torch.nn.functional as F

INF, NAN = math.inf, math.nan


def full(sizes, value, dtype=torch.float32):
    return torch.full(sizes, value, dtype=dtype)


def half(sizes, value):
    return full(sizes, value, torch.float16)


def values(*numbers):
    return torch.tensor(numbers, dtype=torch.float32)


def by_value(faulty, healthy, step):
    return faulty, healthy, lambda x, is_faulty: step(x)


def by_code(x, step):
    return x, x, step


def by_both(faulty, healthy, step):
    return faulty, healthy, step


def eps(is_faulty):
    """0 in FP16, whose smallest number is 5.96e-8, or one that FP16 holds."""
    return 1e-8 if is_faulty else 1e-3


def h(x):
    return x.half()


def b(x):
    return x.bfloat16()


def eights(*sizes):
    return half(sizes, 8)


def recurrence(x):
    state = h(x)
    for _ in range(15):
        state = state.mm(half((1, 1), 2))
    return state


def attention_scores(x):
    q = h(x)
    return (q.matmul(q.transpose(-2, -1)) * 0.125).softmax(-1)


def chain(x):
    y = x
    for _ in range(4):
        y = y * x
    return y


def twice(f):
    """Of one argument that is used several times."""
    return lambda x: f(h(x))


PRODUCTS = {
    "mm": by_value(full((1, 1024), 8), full((1, 1024), 1), lambda x: h(x).mm(eights(1024, 1))),
    "linear_in_region": by_value(full((1, 1024), 8), full((1, 1024), 1), lambda x: F.linear(F.linear(h(x), eights(2, 1024)), half((1, 2), 1e-3))),
    "linear_operand_cast": by_value(full((1, 4), 70000), full((1, 4), 7), lambda x: F.linear(h(x), half((2, 4), 1e-3))),
    "linear_bias": by_value(full((2,), 50000), full((2,), 50), lambda x: F.linear(half((1, 100), 20), half((2, 100), 20), h(x))),
    "matmul_batched": by_value(full((2, 4, 1024), 8), full((2, 4, 1024), 1), lambda x: h(x).matmul(eights(1024, 2))),
    "bmm": by_value(full((2, 4, 1024), 8), full((2, 4, 1024), 1), lambda x: h(x).bmm(eights(2, 1024, 3))),
    "baddbmm": by_value(full((2, 4, 1024), 8), full((2, 4, 1024), 1), lambda x: torch.baddbmm(half((2, 4, 3), 1), h(x), eights(2, 1024, 3))),
    "addmm": by_value(full((1, 1024), 8), full((1, 1024), 1), lambda x: torch.addmm(half((2,), 1), h(x), eights(1024, 2))),
    "mv": by_value(full((2, 1024), 8), full((2, 1024), 1), lambda x: h(x).mv(eights(1024))),
    "dot": by_value(full((1024,), 8), full((1024,), 1), lambda x: h(x).dot(eights(1024))),
    "einsum": by_value(full((1, 1024), 8), full((1, 1024), 1), lambda x: torch.einsum("ij,jk->ik", h(x), eights(1024, 2))),
    "bilinear": by_value(full((1, 16), 16), full((1, 16), 0.1), lambda x: F.bilinear(h(x), half((1, 16), 16), half((1, 16, 16), 16))),
    "attention_scores_unscaled": by_value(full((1, 2, 4, 64), 40), full((1, 2, 4, 64), 1), attention_scores),
    "conv1d": by_value(full((1, 64, 16), 8), full((1, 64, 16), 1), lambda x: F.conv1d(h(x), eights(2, 64, 16))),
    "conv1d_in_region": by_value(full((1, 64, 16), 8), full((1, 64, 16), 1), lambda x: F.conv1d(h(x), eights(2, 64, 16))),
    "conv2d": by_value(full((1, 128, 3, 3), 8), full((1, 128, 3, 3), 1), lambda x: F.conv2d(h(x), eights(2, 128, 3, 3))),
    "conv3d": by_value(full((1, 64, 3, 3, 3), 8), full((1, 64, 3, 3, 3), 1), lambda x: F.conv3d(h(x), eights(1, 64, 3, 3, 3))),
    "conv1d_depthwise": by_value(full((1, 4, 16), 70), full((1, 4, 16), 1), lambda x: F.conv1d(h(x), half((4, 1, 16), 70), groups=4)),
    "conv_transpose1d": by_value(full((1, 1024, 1), 8), full((1, 1024, 1), 1), lambda x: F.conv_transpose1d(h(x), eights(1024, 1, 2))),
    "conv_transpose2d": by_value(full((1, 1024, 1, 1), 8), full((1, 1024, 1, 1), 1), lambda x: F.conv_transpose2d(h(x), eights(1024, 1, 2, 2))),
    "recurrence_doubles": by_value(full((1, 1), 2), full((1, 1), 1e-3), recurrence),
}

STEEP = values(-60000, -60000, 60000, 60000).view(1, 1, 1, 4).repeat(1, 1, 4, 1)
FLAT = values(-1, -1, 1, 1).view(1, 1, 1, 4).repeat(1, 1, 4, 1)
ELEMENTWISE = {
    "residual_add": by_value(full((4,), 40000), full((4,), 40), twice(lambda y: y + y)),
    "difference_of_large": by_value(full((4,), 40000), full((4,), 40), twice(lambda y: y.neg() - y)),
    "embedding_of_huge_norm": by_value(full((4, 8), 4000), full((4, 8), 1), lambda x: F.embedding(torch.tensor([0, 1, 1, 3]), h(x)) * 32.0),
    "square_by_product": by_value(full((4,), 300), full((4,), 3), twice(lambda y: y * y)),
    "square_by_pow": by_value(full((4,), 300), full((4,), 3), lambda x: h(x).pow(2)),
    "cubic_activation": by_value(full((4,), 50), full((4,), 0.5), twice(lambda y: y + 0.044715 * y.pow(3))),
    "bicubic_overshoot": by_value(STEEP, FLAT, lambda x: F.interpolate(h(x), (8, 8), mode="bicubic", align_corners=False)),
    "reciprocal_of_subnormal": by_value(full((4,), 1e-6), full((4,), 0.5), lambda x: h(x).reciprocal()),
    "division_by_small_std": by_value(values(300, 301), values(1, 2), lambda x: h(x) / half((1,), 1e-3)),
    "contrastive_temperature": by_value(full((4,), 90), full((4,), 0.9), lambda x: (h(x) / 1e-3).log_softmax(-1)),
    "reciprocal_in_fp32": by_value(full((4,), 1e-40), full((4,), 0.5), lambda x: x.reciprocal()),
    "chain_of_products_in_fp32": by_value(full((4,), 1e10), full((4,), 1), chain),
}

HUNDREDS, ONES = full((1024,), 100), full((1024,), 1)
SUMS = {
    "sum": by_value(HUNDREDS, ONES, lambda x: h(x).sum()),
    "sum_in_region": by_value(HUNDREDS, ONES, lambda x: h(x).sum()),
    "cumulative_sum": by_value(HUNDREDS, ONES, lambda x: h(x).cumsum(0)),
    "cumulative_product": by_value(full((17,), 2), full((17,), 1), lambda x: h(x).cumprod(0) * 0.25),
    "product": by_value(full((17,), 2), full((17,), 1), lambda x: h(x).prod() * 0.25),
    "norm": by_value(full((1024,), 3000), full((1024,), 3), lambda x: torch.linalg.vector_norm(h(x))),
    "variance": by_value(values(0, 1000), values(0, 1), lambda x: h(x).var()),
    "squared_norm": by_value(full((64,), 60), full((64,), 1), twice(lambda y: y.mul(y).sum().sqrt())),
    "norm_in_fp32": by_value(full((4,), 1e25), full((4,), 1), lambda x: x.pow(2).sum().sqrt()),
}

LARGE, SMALL = full((4,), 11.5), full((4,), 1)
EXPONENTIALS = {
    "exp": by_value(LARGE, SMALL, lambda x: h(x).exp() * 0.5),
    "exp_in_region": by_value(LARGE, SMALL, lambda x: h(x).exp() * 0.5),
    "exp_in_fp32": by_value(full((4,), 100), SMALL, lambda x: x.exp()),
    "exp_in_bf16": by_value(full((4,), 100), SMALL, lambda x: b(x).exp()),
    "softmax_by_hand": by_value(LARGE, SMALL, lambda x: (lambda e: e / e.sum(-1, True))(h(x).exp())),
    "logsumexp_by_hand": by_value(LARGE, SMALL, lambda x: h(x).exp().sum().log()),
    "logsumexp_by_hand_in_fp32": by_value(full((4,), 100), SMALL, lambda x: x.exp().sum().log()),
    "softplus_by_hand": by_value(LARGE, SMALL, lambda x: (h(x).exp() + 1.0).log()),
    "sigmoid_by_hand": by_value(-LARGE, SMALL, lambda x: (h(x).neg().exp() + 1.0).reciprocal()),
    "silu_by_hand_in_fp32": by_value(full((4,), -100), SMALL, lambda x: x / (x.neg().exp() + 1.0)),
    "tanh_by_hand": by_value(LARGE, SMALL, twice(lambda y: (y.exp() - y.neg().exp()) / (y.exp() + y.neg().exp()))),
    "expm1": by_value(LARGE, SMALL, lambda x: h(x).expm1() * 0.5),
    "perplexity": by_value(LARGE, SMALL, lambda x: h(x).mean().exp() * 0.5),
    "risk_set_cumulative_sum": by_value(full((2048,), 4), full((2048,), 0), lambda x: h(x).exp().cumsum(0).log()),
}

DOMAINS = {
    "log_of_underflowed_softmax": by_value(values(0, -20), values(0, -2), lambda x: h(x).softmax(-1).log()),
    "log_of_zero": by_value(values(0, 1), values(0.5, 1), lambda x: x.log()),
    "log_of_negative": by_value(values(1.5, 0.5), values(0.25, 0.5), lambda x: (1.0 - x).log()),
    "log1p_of_minus_two": by_value(values(3, -2), values(3, 0), lambda x: x.log1p()),
    "clamp_below_fp16": by_both(values(0, 1), values(0.5, 1), lambda x, bad: h(x).clamp_min(eps(bad)).log()),
    "eps_below_fp16_in_log": by_both(values(0, 1), values(0.5, 1), lambda x, bad: (h(x) + eps(bad)).float().log()),
    "zero_by_zero": by_value(values(0, 0), values(0, 1), lambda x: x / x.sum()),
    "one_by_zero": by_value(values(0, 1), values(0.5, 1), lambda x: 2.0 * full((2,), 1).div(x)),
    "temperature_of_zero": by_value(full((1,), 0), full((1,), 0.5), lambda x: (values(1, 2, 3) / x).softmax(-1)),
    "sqrt_of_negative": by_value(values(-1e-6, 4), values(1, 4), lambda x: x.sqrt()),
    "rsqrt_of_zero": by_value(values(0, 4), values(1, 4), lambda x: x.rsqrt()),
    "acos_beyond_one": by_value(values(1.0000002, 0), values(0.5, 0), lambda x: x.acos()),
    "asin_beyond_one": by_value(values(-1.0000002, 0), values(0.5, 0), lambda x: x.asin()),
    "atanh_of_rounded_one": by_value(full((2,), 0.9999), full((2,), 0.5), lambda x: h(x).atanh()),
    "logit_of_rounded_one": by_value(full((2,), 0.9999), full((2,), 0.5), lambda x: torch.logit(h(x))),
    "erfinv_of_one": by_value(full((2,), 1), full((2,), 0.5), lambda x: x.erfinv()),
    "acosh_below_one": by_value(full((2,), 0.5), full((2,), 2), lambda x: x.acosh()),
    "negative_power_of_zero": by_value(values(0, 4), values(1, 4), lambda x: x.pow(-0.5)),
    "root_of_negative_by_pow": by_value(values(-8, 4), values(8, 4), lambda x: x.pow(1.0 / 3)),
    "lgamma_of_zero": by_value(values(0, 2), values(1, 2), lambda x: torch.lgamma(x)),
    "logdet_of_singular": by_value(full((2, 2), 1), values(2, 0, 0, 2).view(2, 2), lambda x: torch.logdet(x)),
    "entropy_by_hand": by_value(values(0, 1), values(0.5, 0.5), lambda x: (x * x.log()).neg()),
}


def dice_with_eps(x, bad):
    p = h(x)
    target = p.detach()
    return 1.0 - 2.0 * (p * target).sum() / ((p + target).sum() + eps(bad))


def bce(x):
    return (1.0 - h(x).sigmoid()).log().neg()


def cosine(x):
    other = values(1, 2, 3, 4)
    return (x * other).sum() / (x.pow(2).sum() * other.pow(2).sum()).pow(0.5)


def label_smoothing(x, is_faulty):
    logits = h(x) if is_faulty else h(x).narrow(1, 0, 1024)
    return logits.log_softmax(-1).sum(-1).neg()


def ctc(x, is_faulty):
    return F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2, 3]]), (2 if is_faulty else 3,), (3,))


LOSSES = {
    "cross_entropy_by_hand": by_value(values(0, 0, 20), values(0, 0, 2), lambda x: h(x).softmax(-1).log().neg().narrow(0, 0, 1)),
    "label_smoothing_sum": by_code(full((1, 8192), 0), label_smoothing),
    "bce_by_hand": by_value(values(12, 0), values(2, 0), bce),
    "kl_by_hand": by_value(values(0, 1), values(0.5, 0.5), lambda q: full((2,), 0.5) * (full((2,), 0.5).log() - q.log())),
    "dice_of_empty_masks": by_value(full((4,), 0), full((4,), 1), lambda x: 1.0 - 2.0 * (x * x.detach()).sum() / (x.sum() + x.detach().sum())),
    "dice_smoothing_below_fp16": by_both(full((4,), 0), full((4,), 1), dice_with_eps),
    "squared_hinge": by_value(full((4,), -300), full((4,), 0.5), lambda x: (1.0 - h(x)).clamp_min(0).pow(2)),
    "gaussian_nll_of_zero_variance": by_value(values(0, 1), values(0.5, 1), lambda v: 0.5 * v.log() + 0.5 / v),
    "cosine_by_hand_of_zero": by_value(full((4,), 0), full((4,), 1), cosine),
    "vae_kl": by_value(full((4,), 11.5), full((4,), 0), twice(lambda y: -0.5 * (1.0 + y - y.exp()))),
    "mean_absolute_percentage": by_value(values(0, 1), values(0.5, 1), lambda t: ((t - 2.0) / t).abs()),
    "mse_of_huge_targets": by_value(full((4,), 300), full((4,), 3), lambda x: F.mse_loss(h(x), half((4,), 0))),
    "mse_in_bf16_of_huge_targets": by_value(full((4,), 1e20), full((4,), 3), lambda x: F.mse_loss(b(x), full((4,), 0, torch.bfloat16))),
    "l1_sum": by_value(HUNDREDS, ONES, lambda x: F.l1_loss(h(x), half((1024,), 0), reduction="sum")),
    "smooth_l1_sum": by_value(HUNDREDS, ONES, lambda x: F.smooth_l1_loss(h(x), half((1024,), 0), reduction="sum")),
    "poisson_nll": by_value(full((4,), 12), full((4,), 1), lambda x: F.poisson_nll_loss(h(x), half((4,), 2))),
    "poisson_nll_of_zero_rate": by_both(values(0, 1), values(0.5, 1), lambda x, bad: F.poisson_nll_loss(h(x), half((2,), 2), log_input=False, eps=eps(bad))),
    "cross_entropy_without_targets": by_code(values(1, 2, 3, 4).view(2, 2), lambda x, is_faulty: F.cross_entropy(x, torch.tensor([-100, -100] if is_faulty else [1, 1]))),
    "ctc_target_too_long": by_code(full((3, 1, 4), 0), ctc),
}

ROW = values(1, 2, 3, 4).view(1, 4)


def layer_norm(x, bad):
    y = h(x)
    centered = y - y.mean(-1, True)
    return centered / (centered.pow(2).mean(-1, True) + eps(bad)).sqrt()


def variance(y):
    return (y.pow(2).mean() - y.mean().pow(2)).sqrt()


def spectral(w):
    u = w.detach().mv(full((2,), 1))
    return w / (u / torch.linalg.vector_norm(u)).dot(w.mv(full((2,), 0.5)))


EIGHT = values(1, 2, 3, 4, 5, 6, 7, 8)
NORMS = {
    "layer_norm_by_hand_eps_below_fp16": by_both(full((1, 4), 3), ROW, layer_norm),
    "rms_norm_by_hand_of_large": by_value(full((1, 4), 300), ROW, twice(lambda y: y * (y.pow(2).mean(-1, True) + 1e-5).rsqrt())),
    "rms_norm_by_hand_eps_below_fp16": by_both(full((1, 4), 0), ROW, lambda x, bad: (lambda y: y * (y.pow(2).mean(-1, True) + eps(bad)).rsqrt())(h(x))),
    "unit_vector_eps_below_fp16": by_both(full((4,), 0), ROW.flatten(), lambda x, bad: x / (h(torch.linalg.vector_norm(x)) + eps(bad))),
    "weight_norm_of_zero": by_value(full((2, 4), 0), full((2, 4), 1), lambda v: (v / torch.linalg.vector_norm(v, 2, 1, True)).mm(full((4, 1), 1))),
    "spectral_norm_of_zero": by_value(full((2, 2), 0), full((2, 2), 1), spectral),
    "variance_by_squares": by_value(values(33.34375, 33.25, 33.34375, 33.25), values(1, 2, 4, 5), twice(variance)),
    "variance_by_squares_in_fp32": by_value(values(10000.0029296875, 10000.0009765625, 10000.0029296875, 10000), values(1, 2, 4, 5), variance),
    "z_score_of_constant_row": by_value(full((4,), 3), values(1, 2, 3, 4), lambda x: (x - x.mean()) / x.std()),
    "library_size_of_empty_cell": by_value(full((4,), 0), values(1, 0, 3, 4), lambda x: (x / x.sum() * 1e4).log1p()),
    "layer_norm_without_eps": by_value(full((1, 4), 3), ROW, lambda x: F.layer_norm(x, (4,), eps=0)),
    "group_norm_without_eps": by_value(full((1, 4, 2), 3), EIGHT.view(1, 4, 2), lambda x: F.group_norm(x, 2, eps=0)),
}


def hidden(is_faulty):
    return torch.tensor([True] * 4 if is_faulty else [False, False, True, True])


SCORES = values(1, 2, 3, 4)
MASKS = {
    "mask_1e9_added": by_code(SCORES, lambda x, bad: (h(x) + (-1e9 if bad else -1e4)).softmax(-1)),
    "mask_1e9_times_hidden": by_code(SCORES, lambda x, bad: (h(x) + hidden(bad).half() * (-1e9 if bad else -1e4)).softmax(-1)),
    "mask_1e9_where": by_code(SCORES, lambda x, bad: torch.where(hidden(bad), -1e9 if bad else -1e4, h(x)).softmax(-1)),
    "mask_1e9_filled": by_code(SCORES, lambda x, bad: h(x).masked_fill(hidden(bad), -1e9 if bad else -1e4).softmax(-1)),
    "all_masked_softmax": by_code(SCORES, lambda x, bad: x.masked_fill(hidden(bad), -INF).softmax(-1)),
    "all_masked_log_softmax": by_code(SCORES, lambda x, bad: x.masked_fill(hidden(bad), -INF).log_softmax(-1).narrow(0, 0, 2)),
    "all_masked_less_their_largest": by_code(SCORES, lambda x, bad: (lambda m: (m - m.amax()).exp())(x.masked_fill(hidden(bad), -INF))),
    "all_masked_cross_entropy": by_code(SCORES, lambda x, bad: F.cross_entropy(x.masked_fill(hidden(bad), -INF).unsqueeze(0), torch.tensor([0]))),
    "all_masked_softmax_in_fp16": by_code(SCORES, lambda x, bad: h(x).masked_fill(hidden(bad), -INF).softmax(-1)),
    "zero_times_infinity": by_code(SCORES, lambda x, bad: (x + hidden(False).float() * (-INF if bad else -1e9)).softmax(-1)),
    "infinity_less_infinity": by_code(SCORES, lambda x, bad: (x.masked_fill(hidden(False), -INF) + (INF if bad else 1.0)).softmax(-1)),
}


def penalty(x):
    (slope,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    return (slope.pow(2).sum().sqrt() - 1.0).pow(2)


def distance(x):
    difference = x.select(0, 0) - x.select(0, 1)
    return (difference * difference).sum().sqrt()


def exploding(x, bad):
    y = h(x)
    for _ in range(3):
        y = y.mm(half((1, 1), 300 if bad else 3))
    return y


ZERO, ONE = full((3,), 0), full((3,), 1)
DERIVATIVES = {
    "norm_by_hand_at_zero": by_value(ZERO, ONE, lambda x: x.pow(2).sum().sqrt()),
    "norm_of_numbers_whose_squares_vanish": by_value(full((3,), 1e-30), ONE, lambda x: x.pow(2).sum().sqrt()),
    "root_of_variance_at_zero": by_value(full((4,), 3), values(1, 2, 3, 4), lambda x: x.var().sqrt()),
    "distance_of_equal_points": by_value(full((2, 3), 1), values(1, 2, 3, 4, 5, 7).view(2, 3), distance),
    "where_hides_the_root_of_a_negative": by_value(values(-1, 4), values(1, 4), lambda x: torch.where(x > 0, x.sqrt(), full((2,), 0))),
    "where_hides_the_root_of_zero": by_value(values(0, 4), values(1, 4), lambda x: torch.where(x > 0, x.sqrt(), full((2,), 0))),
    "where_hides_the_log_of_zero": by_value(values(0, 4), values(1, 4), lambda x: torch.where(x > 0, x.log(), full((2,), 0))),
    "where_hides_a_division_by_zero": by_value(values(0, 4), values(1, 4), lambda x: torch.where(x > 0, full((2,), 1) / x, full((2,), 0))),
    "root_by_pow_at_zero": by_value(ZERO, ONE, lambda x: x.pow(0.5)),
    "focal_power_at_one": by_value(ONE, full((3,), 0.5), lambda p: (1.0 - p).pow(0.5) * p),
    "acos_at_one": by_value(ONE, full((3,), 0.5), lambda x: x.acos()),
    "asin_at_minus_one": by_value(-ONE, full((3,), 0.5), lambda x: x.asin()),
    "hypot_at_origin": by_value(ZERO, ONE, lambda x: x.hypot(x * 2.0)),
    "entropy_at_zero": by_value(ZERO, full((3,), 0.5), lambda p: torch.special.entr(p)),
    "xlogy_at_zero": by_value(ZERO, ONE, lambda x: torch.xlogy(x, x)),
    "division_by_tiny": by_value(full((3,), 1e-20), ONE, lambda x: full((3,), 1) / x),
    "vectors_of_equal_eigenvalues": by_value(values(1, 0, 0, 1).view(2, 2), values(1, 0.5, 0.5, 3).view(2, 2), lambda x: torch.linalg.eigh(x)[1].pow(3)),
    "gradient_penalty_at_zero": by_value(ZERO, ONE, penalty),
    "log_of_small": by_value(full((4,), 1e-6), full((4,), 0.5), lambda x: h(x).log()),
    "reciprocal_of_small": by_value(full((4,), 1e-3), full((4,), 0.5), lambda x: h(x).reciprocal()),
    "rsqrt_of_small": by_value(full((4,), 1e-4), full((4,), 0.5), lambda x: h(x).rsqrt()),
    "divisor_of_small": by_value(full((4,), 1e-3), full((4,), 0.5), lambda x: half((4,), 10) / h(x)),
    "root_of_small": by_value(full((4,), 1e-7), full((4,), 0.5), lambda x: h(x).sqrt().mul(half((4,), 1000))),
    "squares_that_vanish_in_fp16": by_value(full((4,), 1e-4), full((4,), 0.5), lambda x: h(x).pow(2).sum().sqrt()),
    "exploding_gradient": by_code(full((1, 1), 1e-4), exploding),
}


def two_uses(x, bad):
    y, weight = h(x), half((4,), 40000 if bad else 4)
    return y.mul(weight) - y.mul(weight.neg())


def deep_chain(x, bad):
    y = h(x)
    for _ in range(4):
        y = y.mm(half((1, 1), 8 if bad else 2))
    return y


def product(x, weight):
    return h(x).mm(half((1, 1), weight))


WEIGHT, PEAK = full((1, 1), 0.01), values(0, 0, 0, 0, 1, 0, 0, 0, 0).view(1, 1, 3, 3)


def slope(bad, size=100):
    return half((1,), size if bad else 1)


LAYERS = {
    "linear_weight_gradient": by_code(WEIGHT, lambda w, bad: F.linear(half((1024, 1), 100 if bad else 1), h(w))),
    "linear_bias_gradient": by_code(full((1,), 0.01), lambda bias, bad: F.linear(half((1024, 1), 0.5), half((1, 1), 0.5), h(bias)).mul(slope(bad))),
    "mm_weight_gradient": by_code(WEIGHT, lambda w, bad: half((1024, 1), 100 if bad else 1).mm(h(w))),
    "conv1d_weight_gradient": by_code(full((1, 1, 1), 0.01), lambda w, bad: F.conv1d(half((1, 1, 1024), 100 if bad else 1), h(w))),
    "embedding_gradient": by_code(WEIGHT, lambda t, bad: F.embedding(torch.zeros(1024, dtype=torch.long), h(t)).mul(slope(bad))),
    "expanded_bias_gradient": by_code(full((1,), 0.01), lambda x, bad: h(x).expand(1024).mul(slope(bad))),
    "cumulative_sum_gradient": by_code(full((1024,), 0.01), lambda x, bad: h(x).cumsum(0).mul(slope(bad))),
    "max_pool_gradient": by_code(PEAK, lambda x, bad: F.max_pool2d(h(x), 2, 1).mul(slope(bad, 30000))),
    "nearest_upsample_gradient": by_code(PEAK, lambda x, bad: F.interpolate(h(x), (6, 6), mode="nearest").mul(slope(bad, 30000))),
    "two_uses_of_an_activation": by_code(full((4,), 0.1), two_uses),
    "layer_norm_gradient_of_constant_row": by_code(full((1, 4), 3), lambda x, bad: F.layer_norm(h(x), (4,), eps=1e-8 if bad else 1e-2).mul(values(-20, 20, -20, 20).half())),
    "scale_beyond_fp16": by_code(full((1, 1), 1), lambda x, bad: product(x, 1) if bad else product(x, 1).float() * 1e-3),
    "scale_times_slope_beyond_fp16": by_code(full((1, 1), 1), lambda x, bad: product(x, 100 if bad else 1)),
    "scale_after_growth": by_code(full((1, 1), 1), lambda x, bad: product(x, 80 if bad else 40)),
    "scale_in_a_deep_chain": by_code(full((1, 1), 1), deep_chain),
    "large_slope_without_scale": by_code(full((1, 1), 1), lambda x, bad: product(x, 1).float() * (1e6 if bad else 1.0)),
}


def untracked(step):
    def run(x, is_faulty):
        with torch.no_grad():
            return step(x, is_faulty).clone()

    return run


def update(faulty, healthy, step):
    return faulty, healthy, untracked(lambda x, bad: step(x))


def adam(second):
    return untracked(lambda g, bad: h(g) / (second(h(g)).sqrt() + eps(bad)))


def bf16_ones(size):
    return full((size,), 1, torch.bfloat16)


UPDATES = {
    "adam_eps_in_fp16": by_both(values(0, 1e-3), values(0.5, 1e-3), adam(lambda m: m.mul(m))),
    "adam_second_moment_vanishes": by_both(values(1e-4, 0.5), values(0.25, 0.5), adam(lambda m: m.pow(2))),
    "adam_second_moment_overflows": by_both(values(300, 0.5), values(0.25, 0.5), adam(lambda m: m.pow(2))),
    "adam_addcdiv_in_fp16": update(values(0, 1e-3), values(0.5, 1e-3), twice(lambda m: half((2,), 1).addcdiv_(m, m.abs(), value=-1e-3))),
    "adam_bias_correction_at_step_zero": by_code(values(0.5, 0.25), untracked(lambda g, bad: g * 0.1 / (1.0 - torch.tensor(0.9).pow(torch.tensor(0.0 if bad else 1.0))))),
    "trust_ratio_without_update": update(full((4,), 0), full((4,), 0.5), lambda u: torch.tensor(2.0) / torch.linalg.vector_norm(u)),
    "momentum_beyond_fp16": update(full((2,), 40000), full((2,), 40), lambda g: h(g).clone().mul_(0.9).add_(h(g))),
    "update_beyond_fp16": update(full((2,), 1000), full((2,), 1), lambda g: half((2,), 1).add_(h(g), alpha=-100)),
    "clip_norm_in_fp32": update(full((4,), 1e30), full((4,), 1), lambda g: g * (1.0 / g.pow(2).sum().sqrt())),
    "schedule_at_step_zero": by_code(full((2,), 1), untracked(lambda w, bad: w.clone().sub_(torch.tensor(0.0 if bad else 4.0).pow(-0.5) * w))),
    "schedule_without_warmup": by_code(full((2,), 1), untracked(lambda w, bad: w.clone().sub_(torch.tensor(0.0) / torch.tensor(0.0 if bad else 100.0) * w))),
    "learning_rate_is_nan": by_code(full((2,), 1), untracked(lambda w, bad: w.clone().add_(w, alpha=NAN if bad else -0.1))),
    "bf16_update_lost": by_code(bf16_ones(4), untracked(lambda w, bad: w.sub_(bf16_ones(4), alpha=1e-3 if bad else 0.5))),
    "fp16_update_lost": by_code(half((4,), 1), untracked(lambda w, bad: w.addcdiv_(half((4,), 1), half((4,), 1), value=-1e-4 if bad else -0.5))),
    "bf16_weight_decay_lost": by_code(bf16_ones(4), untracked(lambda w, bad: w.mul_(1 - (1e-4 if bad else 0.5)))),
    "bf16_average_frozen": by_code(bf16_ones(4), untracked(lambda w, bad: w.clone().lerp_(full((4,), 0, torch.bfloat16), 1e-3 if bad else 0.5))),
    "fp16_average_frozen": by_code(half((4,), 0.5), untracked(lambda w, bad: w.clone().lerp_(half((4,), 1), 1e-4 if bad else 0.5))),
}


def microbatches(w, bad):
    for _ in range(2 if bad else 1):
        w.mul(w).sum().backward()


def batch_norm(x, dtype=torch.float32):
    return F.batch_norm(x, torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype), training=True)


def index_add(x, bad):
    num = 1000 if bad else 100
    return full((2,), 0, torch.bfloat16).index_add(0, torch.ones(num, dtype=torch.long), b(x).narrow(0, 0, num))


def one_sample(x):
    return torch.batch_norm(x, None, None, torch.zeros(1), torch.ones(1), True, 0.1, 1e-5, False)


SILENT = {
    "gradient_dead_by_underflow": by_code(full((4, 4), 1), lambda x, bad: h(x).mm(half((4, 4), 1)).float() * (1e-8 if bad else 1e-2)),
    "gradient_subnormal": by_code(full((4, 4), 1), lambda x, bad: h(x).mm(half((4, 4), 1e-3 if bad else 1)).mul(half((1,), 1e-5 if bad else 1e-2))),
    "embedding_gradient_stops_at_256": by_code(full((2, 1), 1), lambda t, bad: F.embedding(torch.zeros(1000 if bad else 100, dtype=torch.long), b(t))),
    "microbatches_add_up_in_bf16": by_code(bf16_ones(4), microbatches),
    "positions_in_bf16": by_code(full((1,), 1), lambda x, bad: torch.arange(2048 if bad else 200, dtype=torch.bfloat16) * x),
    "positions_rounded_by_region": by_code(full((1, 16), 0.01), lambda f, bad: b(torch.arange(2048.0 if bad else 200.0)).unsqueeze(1).matmul(b(f)).cos()),
    "index_add_stops_at_256": by_code(full((1000,), 1), index_add),
    "offsets_cumulated_in_bf16": by_code(full((1000,), 1), lambda x, bad: b(x).narrow(0, 0, 1000 if bad else 100).cumsum(0)),
    "mse_in_fp16": by_code(full((4,), 1), lambda x, bad: (lambda y: F.mse_loss(y, y.detach() * 0.5))(h(x) if bad else x)),
    "bce_of_saturated_probability": by_value(full((4,), 30), full((4,), 2), lambda x: F.binary_cross_entropy(x.sigmoid(), full((4,), 0))),
    "batch_norm_statistics_in_bf16": by_code(values(1, 2, 3, 4).view(4, 1), lambda x, bad: batch_norm(b(x), torch.bfloat16) if bad else batch_norm(x)),
    "batch_norm_of_one_sample": by_value(values(1).view(1, 1), values(1, 2).view(2, 1), one_sample),
    "half_fft_of_length_12": by_code(full((12,), 1), lambda x, bad: torch.fft.rfft(h(x) if bad else x).abs()),
    "bf16_fft": by_code(full((8,), 1), lambda x, bad: torch.fft.rfft(b(x) if bad else x).abs()),
}


def uninitialized(x, bad):
    torch.use_deterministic_algorithms(True, warn_only=True)
    buffer = torch.empty(4)
    torch.use_deterministic_algorithms(False)
    buffer.narrow(0, 0, 3 if bad else 4).fill_(1)
    return x + buffer


def image(x, bad):
    pixels = values(*([NAN if bad else 0.25] + [0.5] * 15)).view(1, 1, 4, 4)
    return F.max_pool2d(pixels, 2) * x.narrow(2, 0, 2).narrow(3, 0, 2)


DATA = {
    "nan_in_a_record": by_code(full((2, 3), 0.5), lambda w, bad: F.linear(values(1, NAN if bad else 2, 3).view(1, 3), w)),
    "infinity_in_a_target": by_code(values(1, 2, 3), lambda x, bad: (x - values(1, INF if bad else 2, 3)).pow(2).mean()),
    "infinity_in_a_weight": by_value(values(1, INF, 3, 4).view(2, 2), values(1, 2, 3, 4).view(2, 2), lambda w: F.linear(full((1, 2), 1), w)),
    "nan_in_an_image": by_code(full((1, 1, 4, 4), 1), image),
    "index_out_of_vocabulary": by_code(full((4, 2), 1), lambda t, bad: F.embedding(torch.tensor([0, 4 if bad else 3]), t)),
    "batch_norm_of_an_infinite_batch": by_code(full((3, 1), 1), lambda x, bad: batch_norm(values(1, INF if bad else 2, 3).view(3, 1)) * x),
    "mean_of_no_target": by_code(full((4,), 1), lambda x, bad: x.narrow(0, 0, 0 if bad else 2).mean()),
    "std_of_one_value": by_code(full((4,), 1), lambda x, bad: x.narrow(0, 0, 1 if bad else 2).std()),
    "uninitialized_memory": by_code(values(1, 2, 3, 4), uninitialized),
    "weight_beyond_fp16": by_value(full((2, 2), 1e5), full((2, 2), 1), lambda w: F.linear(half((1, 2), 1), h(w))),
}

CASES = PRODUCTS | ELEMENTWISE | SUMS | EXPONENTIALS | DOMAINS | LOSSES | NORMS | MASKS | DERIVATIVES | LAYERS | UPDATES | SILENT | DATA
