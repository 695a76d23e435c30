#pragma once

#include <cstdint>
#include <memory>

#include "mantissa/base/api.h"
#include "mantissa/models/language_model.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// The model of a run in its first state, as `model` says: causal for the objective "causal",
/// bidirectional for "masked".
MANTISSA_API std::unique_ptr<const models::LanguageModel> make_model(const RunConfig& config);

/// Of a Hyena: the longest sequence that its filters are made for.
int64_t model_positions(const RunConfig& config);

}  // namespace mantissa::train
