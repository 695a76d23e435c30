#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/report/study.h"

namespace mantissa::report {

/// An arm as a cell of a table of formats by microbatches.
struct AttributionCell {
  std::string arm;
  std::string format;      // precision, or precision and policy
  std::string microbatch;  // as it was asked for: a number, or auto
};

/// What one thing did: how many times as fast, or as early at the target, as without it.
struct Effect {
  std::string factor;  // format, microbatch, interaction, together
  std::string text;    // "bf16 for fp32, at microbatch 8"
  Estimate speed;      // median over rounds in which all its cells took their turn side by side
  int64_t rounds = 0;
  Estimate
      target;  // of training time to the target, median over seeds that reached it in each cell
  int64_t seeds = 0;
};

/// What ending runs after StudyOptions::patience did to an arm. Medians over seeds.
struct Stopping {
  std::string arm;
  double step = kNotKnown;        // where it would have ended
  double last_step = kNotKnown;   // without it
  double speed = kNotKnown;       // training time of all steps over that until it ended
  double difference = kNotKnown;  // of the best validation, bits per base: above 0 it cost quality
};

/// A gain split into what made it.
struct Attribution {
  std::vector<Effect> effects;
  std::vector<Stopping> stopping;  // with StudyOptions::patience: of each cell
};

/// Holds each format beside that of the reference, and each microbatch beside the first. In a round
/// the format at the first microbatch, times the microbatch in the format of the reference, times
/// their interaction is what both did together, so the medians of the four nearly are. Cells are
/// arms of `study`, the first of them its reference; the whole table is there, each cell once.
MANTISSA_API Attribution attribute(const Study& study, const std::vector<AttributionCell>& cells);

/// Times of the cells, then effects, then what was not varied: the effective batch, of `batch`
/// sequences, and ranks.
MANTISSA_API std::string attribution_text(const Study& study,
                                          const std::vector<AttributionCell>& cells,
                                          const Attribution& attribution, int64_t batch);

}  // namespace mantissa::report
