#include "mantissa/record/event.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa::record {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Summary example_summary() {
  return {.steps = 418,
          .bits_per_base = 1.925,
          .loss = 1.334,
          .markov_bits_per_base = 1.931,
          .step_time_s = 0.95,
          .tokens_per_s = 8600.5,
          .peak_bytes = {{"weights", 3200000}, {"other", 17}},
          .peak_holders = {{"activations blocks.0.mlp", 1700000}},
          .bytes_per_param = {{"weights", 2.0}, {"moments", 2.03125}},
          .scale = 1024,
          .skipped_steps = 3,
          .params = 800000,
          .seed = 7,
          .precision = "fp16",
          .policy = "torch",
          .allocator = "caching",
          .stopped_by = "patience"};
}

ValueRange example_range() {
  return {.kind = "gradient",
          .scope = "blocks.0",
          .name = "MmBackward0",
          .format = "fp16",
          .count = 100,
          .zeros = 3,
          .nan = 1,
          .positive_infinity = 2,
          .negative_infinity = 4,
          .smallest = 0x1p-24,
          .largest = 60000,
          .first_exponent = -24,
          .exponents = {7, 0, int64_t{1} << 40},
          .narrow = {{"fp16", {{"zero", 5}, {"subnormal", 6}, {"overflow", 7}}}}};
}

OperationRow example_operation() {
  return {.phase = "backward",
          .scope = "blocks.*.mlp",
          .operation = "aten::mm",
          .kind = "product",
          .format = "fp32",
          .calls = 12,
          .time_s = 0.25,
          .flops = 1e12,
          .bytes = 3e9,
          .eligible = true,
          .in_16_bits = true,
          .reason = "policy",
          .detail = "mm=fp32"};
}

std::vector<Entry> one_of_each() {
  return {
      {1.5, RunStart{"[train]\nsteps = 3\n", {{"torch", "2.13.0"}}, "EPYC \"7763\"", 40}},
      {2.25, Step{12,
                  1.5,
                  2.164,
                  3e-3,
                  0.75,
                  65536,
                  true,
                  1e6,
                  0.25,
                  0.125,
                  int64_t{1} << 40,
                  {{"w", {{"norm", kInf}, {"fp16_zero", 0.25}}}, {"b", {{"norm", 0}}}},
                  {{"data", 0.125}, {"forward", 0.0625}}}},
      {3, Evaluation{13, 1.9, 1.3, 0.5}},
      {4,
       CheckpointSaved{
           14, "runs/a/step-14", 123456, 0.5, {{"weights", 400}}, {{"weights blocks.0", 200}}}},
      {5, Message{15, Level::warning, "two\nlines"}},
      {6, RunEnd{example_summary()}},
      {7, Ranges{16, 1024, {example_range(), {}}}},
      {8, TimeSplit{17, 0.5, 0.25, {{"casts", 0.125}}, {example_operation(), {}}}},
  };
}

double loss_after_round_trip(double loss) {
  const Entry read = from_json(to_json(Entry{0, Step{.loss = loss}}));
  return std::get<Step>(read.event).loss;
}

std::string message_of(const std::string& line) {
  try {
    (void)from_json(line, "record r: line 3");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Event, IsOneLineThatReadsWell) {
  EXPECT_EQ(to_json(Entry{2.5, Evaluation{13, 1.9, 1.25}}),
            R"({"schema":1,"time_s":2.5,"type":"evaluation","step":13,"bits_per_base":1.9,)"
            R"("loss":1.25,"duration_s":0.0})");
  for (const Entry& entry : one_of_each()) {
    EXPECT_EQ(to_json(entry).find('\n'), std::string::npos);
  }
}

TEST(Event, ACheckpointOfAnEarlierMantissaHasNoPeak) {
  const std::string line = to_json(Entry{0, CheckpointSaved{1, "step-1", 2, 3}});
  EXPECT_EQ(line.find("peak"), std::string::npos) << line;
  EXPECT_TRUE(std::get<CheckpointSaved>(from_json(line).event).peak_bytes.empty());
  // Of a step and of a summary it is no later key.
  std::string step = to_json(Entry{0, Step{}});
  const std::string peak = R"(,"peak_bytes":0)";
  step.erase(step.find(peak), peak.size());
  EXPECT_NE(message_of(step).find("key \"peak_bytes\" is missing"), std::string::npos);
}

TEST(Event, AStepWithoutStatisticsOfGradientsHasNoKeyForThem) {
  EXPECT_EQ(to_json(Entry{0, Step{}}).find("gradients"), std::string::npos);
  const std::string line = to_json(Entry{0, Step{.gradients = {{"w", {{"norm", kInf}}}}}});
  EXPECT_NE(line.find(R"("gradients":{"w":{"norm":"inf"}})"), std::string::npos) << line;
  EXPECT_EQ(std::get<Step>(from_json(line).event).gradients.at("w").at("norm"), kInf);
}

TEST(Event, AStepOfAnEarlierMantissaHasNoPhases) {
  const std::string line = to_json(Entry{0, Step{}});
  EXPECT_EQ(line.find("phases"), std::string::npos) << line;
  EXPECT_TRUE(std::get<Step>(from_json(line).event).phases.empty());
  EXPECT_TRUE(std::get<TimeSplit>(from_json(to_json(Entry{0, TimeSplit{}})).event).phases.empty());
}

TEST(Event, AnEvaluationOfAnEarlierMantissaHasNoDuration) {
  const Entry read = from_json(
      R"({"schema":1,"time_s":0,"type":"evaluation","step":1,"bits_per_base":2,"loss":3})");
  EXPECT_EQ(std::get<Evaluation>(read.event).duration_s, 0);
}

// Each field is non-default in the examples, so a field that got lost would show.
TEST(Event, EveryKindReadsBackWithAllItsFields) {
  for (const Entry& entry : one_of_each()) {
    const std::string line = to_json(entry);
    SCOPED_TRACE(line);
    const Entry read = from_json(line);
    EXPECT_EQ(read.event.index(), entry.event.index());
    EXPECT_EQ(read.time_s, entry.time_s);
    EXPECT_EQ(to_json(read), line);
  }
  const Entry step = from_json(to_json(one_of_each()[1]));
  EXPECT_EQ(std::get<Step>(step.event).grad_norm, 0.75);
  EXPECT_TRUE(std::get<Step>(step.event).skipped);
  EXPECT_EQ(std::get<Step>(step.event).peak_bytes, int64_t{1} << 40);
  const Entry ranges = from_json(to_json(one_of_each()[6]));
  EXPECT_EQ(std::get<Ranges>(ranges.event).values.at(0), example_range());
  EXPECT_EQ(std::get<Ranges>(ranges.event).values.at(1), ValueRange());
  EXPECT_EQ(std::get<Step>(step.event).phases.at("forward"), 0.0625);
  const Entry split = from_json(to_json(one_of_each()[7]));
  EXPECT_EQ(std::get<TimeSplit>(split.event).operations.at(0), example_operation());
  EXPECT_EQ(std::get<TimeSplit>(split.event).operations.at(1), OperationRow());
  EXPECT_EQ(std::get<TimeSplit>(split.event).phases.at("casts"), 0.125);
  const Entry end = from_json(to_json(one_of_each()[5]));
  EXPECT_EQ(std::get<RunEnd>(end.event).summary, example_summary());
}

TEST(Event, NonFiniteNumbersSurvive) {
  EXPECT_TRUE(std::isnan(loss_after_round_trip(kNan)));
  EXPECT_EQ(loss_after_round_trip(kInf), kInf);
  EXPECT_EQ(loss_after_round_trip(-kInf), -kInf);
  EXPECT_NE(to_json(Entry{0, Step{.loss = -kInf}}).find(R"("loss":"-inf")"), std::string::npos);
}

TEST(Event, NumbersReadBackToTheLastBit) {
  const uint64_t seed = 20;
  SCOPED_TRACE(seed);
  Random random(seed, 0);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random.next_u64();
    const auto value = std::bit_cast<double>(bits);
    if (std::isfinite(value)) {
      EXPECT_EQ(std::bit_cast<uint64_t>(loss_after_round_trip(value)), bits) << value;
    }
  }
  EXPECT_TRUE(std::signbit(loss_after_round_trip(-0.0)));
  EXPECT_EQ(loss_after_round_trip(5e-324), 5e-324);
}

TEST(Event, BytesThatAreNotUtf8AreReplaced) {
  const Entry read = from_json(to_json(Entry{0, Message{1, Level::info, "a\xff"}}));
  EXPECT_EQ(std::get<Message>(read.event).text, "a\xEF\xBF\xBD");
}

TEST(Event, KeysThatAreNotKnownArePassedOver) {
  const Entry read = from_json(
      R"({"schema":1,"time_s":0,"type":"evaluation","step":1,"bits_per_base":2,"loss":3,"x":[1]})");
  EXPECT_EQ(std::get<Evaluation>(read.event).loss, 3);
}

TEST(Event, DamageIsNamed) {
  const std::string advice =
      "; the record is damaged: move it away, and a resume goes on without its history";
  const std::string where = "record r: line 3: ";
  EXPECT_EQ(message_of("{"), where + "not a line of JSON" + advice);
  EXPECT_EQ(message_of("[1]"), where + "not an object of JSON" + advice);
  EXPECT_EQ(message_of(R"({"schema":1,"time_s":0})"), where + "key \"type\" is missing" + advice);
  EXPECT_EQ(message_of(R"({"schema":1,"time_s":0,"type":"stop"})"),
            where + "unknown type \"stop\" of event" + advice);
  const std::string start = R"({"schema":1,"time_s":0,"type":"evaluation",)";
  EXPECT_EQ(message_of(start + R"("step":1.5,"bits_per_base":2,"loss":3})"),
            where + "\"step\" is 1.5, not an integer of 64 bits" + advice);
  EXPECT_EQ(message_of(start + R"("step":9223372036854775808,"bits_per_base":2,"loss":3})"),
            where + "\"step\" is 9223372036854775808, not an integer of 64 bits" + advice);
  EXPECT_EQ(message_of(start + R"("step":1,"bits_per_base":"big","loss":3})"),
            where + "\"bits_per_base\" is \"big\", not a number" + advice);
  EXPECT_EQ(message_of(R"({"schema":1,"time_s":0,"type":"message","step":1,"level":3,"text":""})"),
            where + "\"level\" is 3, not \"info\" or \"warning\"" + advice);
  const std::string ranges =
      R"({"schema":1,"time_s":0,"type":"ranges","step":1,"scale":1,"values":)";
  EXPECT_EQ(message_of(ranges + "3}"), where + "\"values\" is 3, not an array" + advice);
  EXPECT_EQ(message_of(ranges + "[3]}"),
            where + "\"values\" is [3], not an array of objects" + advice);
}

TEST(Event, DeepNestingIsRefusedBeforeItIsParsed) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(message_of(R"({"schema":1,"step":)" + deep),
            "record r: line 3: nested deeper than any record; the record is damaged: move it away, "
            "and a resume goes on without its history");
  const Entry read = from_json(to_json(Entry{0, Message{1, Level::info, "\"" + deep}}));
  EXPECT_EQ(std::get<Message>(read.event).text, "\"" + deep);
}

TEST(Event, ALaterSchemaIsUnsupportedNotCorrupt) {
  EXPECT_THROW((void)from_json(R"({"schema":2,"time_s":0,"type":"later"})"), Unsupported);
  EXPECT_EQ(message_of(R"({"schema":2})"),
            "record r: line 3: of schema 2, this mantissa reads up to 1; use a later mantissa");
}

TEST(Event, ChangedBytesNeverDoMoreThanThrow) {
  const uint64_t seed = 5;
  SCOPED_TRACE(seed);
  Random random(seed, 0);
  for (const Entry& entry : one_of_each()) {
    const std::string line = to_json(entry);
    for (int i = 0; i < 2000; ++i) {
      std::string changed = line;
      changed[random.below(changed.size())] = static_cast<char>(random.below(256));
      try {
        (void)from_json(changed);
      } catch (const Corruption&) {
      } catch (const Unsupported&) {
      }
    }
  }
}

TEST(Summary, IsOneObjectWithAnObjectByCategory) {
  EXPECT_EQ(
      to_json(example_summary()),
      R"({"steps":418,"bits_per_base":1.925,"loss":1.334,"markov_bits_per_base":1.931,)"
      R"("step_time_s":0.95,"tokens_per_s":8600.5,"peak_bytes":{"other":17,"weights":3200000},)"
      R"("peak_holders":{"activations blocks.0.mlp":1700000},)"
      R"("bytes_per_param":{"moments":2.03125,"weights":2.0},)"
      R"("scale":1024.0,"skipped_steps":3,"params":800000,"seed":7,"precision":"fp16",)"
      R"("policy":"torch","allocator":"caching","stopped_by":"patience"})");
}

TEST(Summary, OfAnEarlierRecordLacksTheLaterKeys) {
  const std::string line = to_json(Entry{0, RunEnd{example_summary()}});
  const auto without = [&](const std::string& text) {
    std::string shorter = line;
    shorter.erase(line.find(text), text.size());
    return std::get<RunEnd>(from_json(shorter).event).summary;
  };
  Summary expected = example_summary();
  expected.bytes_per_param.clear();
  EXPECT_EQ(without(R"("bytes_per_param":{"moments":2.03125,"weights":2.0},)"), expected);
  expected = example_summary();
  expected.peak_holders.clear();
  EXPECT_EQ(without(R"("peak_holders":{"activations blocks.0.mlp":1700000},)"), expected);
  expected = example_summary();
  expected.allocator.clear();
  EXPECT_EQ(without(R"("allocator":"caching",)"), expected);
}

TEST(Event, StepOfThoseThatHaveOne) {
  EXPECT_EQ(step_of(Step{.step = 3}), 3);
  EXPECT_EQ(step_of(Message{.step = 4}), 4);
  EXPECT_EQ(step_of(Ranges{.step = 5}), 5);
  EXPECT_EQ(step_of(TimeSplit{.step = 6}), 6);
  EXPECT_EQ(step_of(RunStart{}), -1);
  EXPECT_EQ(step_of(RunEnd{}), -1);
}

}  // namespace
}  // namespace mantissa::record
