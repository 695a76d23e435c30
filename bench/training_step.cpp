#include "bench/training_step.h"

#include <map>
#include <memory>
#include <string>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/rotary.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/step.h"

namespace mantissa::bench {
namespace {

using numerics::Format;
using Tensors = std::vector<at::Tensor>;

constexpr int kBatches = 4;

train::RunConfig step_config(Format compute, const StepSettings& settings) {
  train::RunConfig config;
  config.data.context = kStepContext;
  config.model.layers = kStepLayers;
  config.model.width = kStepWidth;
  config.model.heads = kStepHeads;
  config.model.mlp_ratio = kStepMlpRatio;
  config.model.rope_base = kStepRopeBase;
  config.train.batch = kStepBatch;
  config.optim.lr = kStepLr;
  config.optim.schedule = "constant";
  config.optim.beta1 = kStepBeta1;
  config.optim.beta2 = kStepBeta2;
  config.optim.eps = kStepEps;
  config.optim.weight_decay = kStepWeightDecay;
  config.optim.clip = kStepClip;
  config.precision.compute = numerics::to_string(compute);
  config.precision.policy = settings.policy;
  config.train.recompute = settings.recompute;
  return config;
}

// The model, loss and step of models::Transformer and train::training_step, written with nothing
// but LibTorch, so that ours may change and its peer stays. bench/peer/training_step.py is the same
// in Python.
class LibtorchStep {
 public:
  explicit LibtorchStep(Format compute) : autocast_(compute == Format::bf16) {
    for (const tensor::Parameter& parameter : step_parameters()) {
      const at::Tensor value = parameter.value.detach().clone().requires_grad_();
      parameters_[parameter.name] = value;
      (value.dim() > 1 ? decayed_ : plain_).add(value);
    }
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      rotary_[dtype] =
          ops::rotary_tables(kStepContext, kStepWidth / kStepHeads, kStepRopeBase, dtype);
    }
  }

  double run() {
    const ops::CpuKernelsGuard stock(ops::CpuKernels::stock);
    const data::Batch& batch = batches_[step_++ % batches_.size()];
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, autocast_);
    const at::Tensor loss = loss_of(batch);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    loss.backward();
    update();
    return loss.item<double>();
  }

 private:
  // Parameters that share their weight decay.
  struct Group {
    Tensors parameters, exp_avg, exp_avg_sq, steps;

    void add(const at::Tensor& parameter) {
      parameters.push_back(parameter);
      exp_avg.push_back(at::zeros_like(parameter));
      exp_avg_sq.push_back(at::zeros_like(parameter));
      steps.push_back(at::zeros({}));
    }

    Tensors gradients() const {
      Tensors list;
      for (const at::Tensor& parameter : parameters) {
        list.push_back(parameter.grad());
      }
      return list;
    }

    void update(double weight_decay) {
      for (at::Tensor& step : steps) {
        step.add_(1);
      }
      at::_fused_adamw_(parameters, gradients(), exp_avg, exp_avg_sq, {}, steps, kStepLr,
                        kStepBeta1, kStepBeta2, weight_decay, kStepEps, /*amsgrad=*/false,
                        /*maximize=*/false);
      for (at::Tensor& parameter : parameters) {
        parameter.mutable_grad().reset();
      }
    }
  };

  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    return at::layer_norm(x, {kStepWidth}, parameters_.at(name + ".weight"),
                          parameters_.at(name + ".bias"));
  }

  at::Tensor rotate(const at::Tensor& x) const {
    const auto& [cosines, sines] = rotary_.at(x.scalar_type());
    const auto halves = x.chunk(2, -1);
    return x.mul(cosines).add(at::cat({halves[1].neg(), halves[0]}, -1).mul(sines));
  }

  at::Tensor attend(const std::string& block, const at::Tensor& x) const {
    const at::Tensor qkv = at::linear(x, parameters_.at(block + "attention.qkv.weight"))
                               .view({kStepBatch, kStepContext, 3, kStepHeads, -1})
                               .permute({2, 0, 3, 1, 4});
    const at::Tensor y = at::scaled_dot_product_attention(rotate(qkv[0]), rotate(qkv[1]), qkv[2],
                                                          /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                                          /*is_causal=*/true);
    return at::linear(y.transpose(1, 2).reshape({kStepBatch, kStepContext, kStepWidth}),
                      parameters_.at(block + "attention.out.weight"));
  }

  at::Tensor loss_of(const data::Batch& batch) const {
    const at::Tensor& embedding = parameters_.at("embedding.weight");
    at::Tensor x = at::embedding(embedding, batch.tokens);
    for (int64_t layer = 0; layer < kStepLayers; ++layer) {
      const std::string block = concat("blocks.", layer, '.');
      x = x.add(attend(block, norm(block + "attention_norm", x)));
      const at::Tensor hidden =
          at::linear(norm(block + "mlp_norm", x), parameters_.at(block + "mlp.up.weight"));
      x = x.add(at::linear(at::gelu(hidden, "tanh"), parameters_.at(block + "mlp.down.weight")));
    }
    const at::Tensor logits = at::linear(norm("final_norm", x), embedding);
    return at::cross_entropy_loss(logits.to(at::kFloat).flatten(0, 1), batch.targets.flatten());
  }

  void update() {
    const at::NoGradGuard no_grad;
    Tensors gradients = decayed_.gradients();
    const Tensors more = plain_.gradients();
    gradients.insert(gradients.end(), more.begin(), more.end());
    const at::Tensor total = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)));
    at::_foreach_mul_(gradients, total.add(1e-6).reciprocal().mul(kStepClip).clamp_max(1));
    decayed_.update(kStepWeightDecay);
    plain_.update(0);
  }

  bool autocast_;
  std::map<std::string, at::Tensor> parameters_;
  std::map<at::ScalarType, std::pair<at::Tensor, at::Tensor>> rotary_;
  Group decayed_, plain_;
  std::vector<data::Batch> batches_ = step_batches();
  size_t step_ = 0;
};

}  // namespace

std::vector<data::Batch> step_batches() {
  std::vector<data::Batch> batches(kBatches);
  Random random(17, 0);
  for (data::Batch& batch : batches) {
    for (at::Tensor* tensor : {&batch.tokens, &batch.targets}) {
      *tensor = at::empty({kStepBatch, kStepContext}, at::kLong);
      auto* values = tensor->mutable_data_ptr<int64_t>();
      for (int64_t i = 0; i < kStepTokens; ++i) {
        values[i] = data::kA + static_cast<int64_t>(random.below(4));
      }
    }
  }
  return batches;
}

tensor::ParameterList step_parameters() {
  static_assert(kStepVocabulary == data::kPaddedVocabulary);
  return train::Learner(step_config(Format::fp32, {})).model().parameters();
}

Step our_step(Format compute, const StepSettings& settings) {
  struct State {
    State(Format format, const StepSettings& chosen)
        : learner(step_config(format, chosen)), parts(learner.parts()) {
      parts.gradient_statistics = chosen.gradient_statistics;
    }
    train::Learner learner;
    train::StepParts parts;
    std::vector<data::Batch> batches = step_batches();
    size_t step = 0;
  };
  return [state = std::make_shared<State>(compute, settings)] {
    const data::Batch& batch = state->batches[state->step++ % state->batches.size()];
    return train::training_step(state->parts, {batch}, state->learner.lr()).loss;
  };
}

double activation_bytes(Format compute, const StepSettings& settings) {
  train::Learner learner(step_config(compute, settings));
  const std::vector<data::Batch> batches = step_batches();
  // The first pass makes what later ones find, such as tables of positions.
  train::forward_loss(learner.parts(), batches[0]);
  const int64_t before = tensor::memory::live_bytes().total();
  const at::Tensor loss = train::forward_loss(learner.parts(), batches[0]);
  return static_cast<double>(tensor::memory::live_bytes().total() - before);
}

Step libtorch_step(Format compute) {
  MANTISSA_ASSERT(compute == Format::fp32 || compute == Format::bf16);
  return [step = std::make_shared<LibtorchStep>(compute)] { return step->run(); };
}

}  // namespace mantissa::bench
