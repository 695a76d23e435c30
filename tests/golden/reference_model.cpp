#include "reference_model.h"

#include <algorithm>
#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/numerics/rounding.h"
#include "portable_math.h"

namespace mantissa::golden {
namespace {

using numerics::Format;
using numerics::round_to;

constexpr uint64_t kSeed = 1;
constexpr uint64_t kWeightStream = 1;
constexpr uint64_t kBatchStream = 2;
constexpr int64_t kContext = kInputs / kBases;
constexpr std::string_view kLetters = "ACGT";

Weights zero_weights() { return {Matrix::zeros(kHidden, kInputs), Matrix::zeros(kBases, kHidden)}; }

Weights random_weights() {
  Random random(kSeed, kWeightStream);
  Weights weights = zero_weights();
  for (Matrix* matrix : {&weights.hidden, &weights.output}) {
    for (float& value : matrix->values) {
      value = static_cast<float>(random.uniform() - 0.5);
    }
  }
  return weights;
}

float round_output(Format compute, float value) {
  return numerics::info(compute).storage_bits == 16 ? round_to(compute, value) : value;
}

struct ProductShape {
  int64_t rows;
  int64_t columns;
  int64_t length;  // of the sums
};

template <typename Left, typename Right>
Matrix product(Format compute, const ProductShape& shape, const Left& left, const Right& right) {
  Matrix result = Matrix::zeros(shape.rows, shape.columns);
  for (int64_t i = 0; i < shape.rows; ++i) {
    for (int64_t j = 0; j < shape.columns; ++j) {
      float sum = 0.0F;
      for (int64_t k = 0; k < shape.length; ++k) {
        sum += round_to(compute, left(i, k)) * round_to(compute, right(k, j));
      }
      result.at(i, j) = round_output(compute, sum);
    }
  }
  return result;
}

// x w^T
Matrix linear(Format compute, const Matrix& x, const Matrix& w) {
  return product(
      compute, {x.rows, w.rows, x.columns}, [&](int64_t i, int64_t k) { return x.at(i, k); },
      [&](int64_t k, int64_t j) { return w.at(j, k); });
}

// The gradient of w: dy^T x.
Matrix weight_gradient(Format compute, const Matrix& dy, const Matrix& x) {
  return product(
      compute, {dy.columns, x.columns, x.rows}, [&](int64_t i, int64_t k) { return dy.at(k, i); },
      [&](int64_t k, int64_t j) { return x.at(k, j); });
}

// The gradient of x: dy w.
Matrix input_gradient(Format compute, const Matrix& dy, const Matrix& w) {
  return product(
      compute, {dy.rows, w.columns, w.rows}, [&](int64_t i, int64_t k) { return dy.at(i, k); },
      [&](int64_t k, int64_t j) { return w.at(k, j); });
}

Matrix relu(const Matrix& x) {
  Matrix result = x;
  for (float& value : result.values) {
    value = value > 0 ? value : 0.0F;
  }
  return result;
}

Matrix log_softmax(const Matrix& x) {
  Matrix result = x;
  for (int64_t i = 0; i < x.rows; ++i) {
    float largest = x.at(i, 0);
    for (int64_t j = 1; j < x.columns; ++j) {
      largest = std::max(largest, x.at(i, j));
    }
    float sum = 0.0F;
    for (int64_t j = 0; j < x.columns; ++j) {
      sum += portable_exp(x.at(i, j) - largest);
    }
    const float log_sum = portable_log(sum);
    for (int64_t j = 0; j < x.columns; ++j) {
      result.at(i, j) = (x.at(i, j) - largest) - log_sum;
    }
  }
  return result;
}

float mean_loss(const Matrix& log_p, const std::vector<int64_t>& targets) {
  float sum = 0.0F;
  for (int64_t i = 0; i < log_p.rows; ++i) {
    sum += -log_p.at(i, targets[i]);
  }
  return sum / static_cast<float>(log_p.rows);
}

// Of scale * mean_loss, with regard to the logits.
Matrix logit_gradient(Format compute, const Matrix& log_p, const std::vector<int64_t>& targets,
                      float scale) {
  const float seed = scale / static_cast<float>(log_p.rows);
  Matrix result = log_p;
  for (int64_t i = 0; i < log_p.rows; ++i) {
    for (int64_t j = 0; j < log_p.columns; ++j) {
      const float direct = j == targets[i] ? -seed : 0.0F;
      result.at(i, j) = round_output(compute, direct + (portable_exp(log_p.at(i, j)) * seed));
    }
  }
  return result;
}

// What passes back through a ReLU whose results are `y`.
Matrix masked(const Matrix& dy, const Matrix& y) {
  Matrix result = dy;
  for (size_t i = 0; i < result.values.size(); ++i) {
    result.values[i] = y.values[i] > 0 ? dy.values[i] : 0.0F;
  }
  return result;
}

bool all_finite(const Matrix& gradient, float factor) {
  return std::all_of(gradient.values.begin(), gradient.values.end(),
                     [factor](float g) { return std::isfinite(g) && std::isfinite(g * factor); });
}

}  // namespace

Matrix Matrix::zeros(int64_t rows, int64_t columns) {
  return {rows, columns, std::vector<float>(static_cast<size_t>(rows * columns), 0.0F)};
}

ReferenceTraining::ReferenceTraining(Format compute, std::string_view bases)
    : compute_(compute),
      random_(kSeed, kBatchStream),
      weights_(random_weights()),
      exp_avg_(zero_weights()),
      exp_avg_sq_(zero_weights()),
      scale_(compute == Format::fp16 ? kInitialScale : 1.0F) {
  for (char letter : bases) {
    const size_t base = kLetters.find(letter);
    MANTISSA_CHECK(base != std::string_view::npos, InvalidArgument, "golden: letter \"", letter,
                   "\" in the bases; valid: A C G T");
    bases_.push_back(static_cast<int64_t>(base));
  }
  MANTISSA_CHECK(bases_.size() > kContext, InvalidArgument, "golden: ", bases_.size(),
                 " bases; pass at least ", kContext + 1);
}

Batch ReferenceTraining::draw_batch() {
  Batch batch = {Matrix::zeros(kBatch, kInputs), {}};
  for (int64_t i = 0; i < kBatch; ++i) {
    const auto begin = static_cast<int64_t>(random_.below(bases_.size() - kContext));
    for (int64_t j = 0; j < kContext; ++j) {
      batch.inputs.at(i, (j * kBases) + bases_[begin + j]) = 1.0F;
    }
    batch.targets.push_back(bases_[begin + kContext]);
  }
  return batch;
}

Step ReferenceTraining::step() {
  Step step;
  step.number = ++steps_;
  step.batch = draw_batch();
  step.before = weights_;
  step.scale = scale_;
  const Matrix& x = step.batch.inputs;
  const Matrix hidden = relu(linear(compute_, x, weights_.hidden));
  const Matrix log_p = log_softmax(linear(compute_, hidden, weights_.output));
  step.loss = mean_loss(log_p, step.batch.targets);

  const Matrix d_logits = logit_gradient(compute_, log_p, step.batch.targets, scale_);
  const Matrix d_hidden = masked(input_gradient(compute_, d_logits, weights_.output), hidden);
  step.gradients = {weight_gradient(compute_, d_hidden, x),
                    weight_gradient(compute_, d_logits, hidden)};
  step.applied = update(step.gradients);
  update_scale(step.applied);
  step.after = weights_;
  return step;
}

// The formulas of ops/adamw.h.
bool ReferenceTraining::update(const Weights& gradients) {
  const float factor = 1.0F / scale_;
  if (!all_finite(gradients.hidden, factor) || !all_finite(gradients.output, factor)) {
    return false;
  }
  ++updates_;
  const auto beta1 = static_cast<float>(kBeta1);
  const auto beta2 = static_cast<float>(kBeta2);
  const auto one_minus_beta1 = static_cast<float>(1 - kBeta1);
  const auto one_minus_beta2 = static_cast<float>(1 - kBeta2);
  const auto eps = static_cast<float>(kEps);
  const auto step_size = static_cast<float>(kLr / (1 - portable_power(kBeta1, updates_)));
  const auto inverse_root = static_cast<float>(1 / std::sqrt(1 - portable_power(kBeta2, updates_)));
  const auto decay = static_cast<float>(kLr * kWeightDecay);
  for (Matrix Weights::*part : {&Weights::hidden, &Weights::output}) {
    for (size_t i = 0; i < (weights_.*part).values.size(); ++i) {
      const float g = (gradients.*part).values[i] * factor;
      float& m = (exp_avg_.*part).values[i];
      float& v = (exp_avg_sq_.*part).values[i];
      float& w = (weights_.*part).values[i];
      m = (beta1 * m) + (one_minus_beta1 * g);
      v = (beta2 * v) + ((one_minus_beta2 * g) * g);
      w -= (step_size * (m / ((std::sqrt(v) * inverse_root) + eps))) + (decay * w);
    }
  }
  return true;
}

void ReferenceTraining::update_scale(bool finite) {
  if (compute_ != Format::fp16) {
    return;
  }
  if (!finite) {
    scale_ *= kScaleBackoff;
    finite_steps_ = 0;
  } else if (++finite_steps_ == kScaleGrowthInterval) {
    scale_ *= kScaleGrowth;
    finite_steps_ = 0;
  }
}

std::string bases_of_fasta(std::string_view fasta) {
  std::string bases(fasta.substr(std::min(fasta.find('\n'), fasta.size())));
  std::erase_if(bases, [](char c) { return c == '\n' || c == '\r'; });
  return bases;
}

}  // namespace mantissa::golden
