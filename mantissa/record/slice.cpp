#include "mantissa/record/slice.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"

namespace mantissa::record {
namespace {

using nlohmann::ordered_json;

std::string existing(const std::filesystem::path& path, FileSystem& files) {
  return path_exists(path, files) ? read_file(path, files) : std::string();
}

}  // namespace

std::string to_json(const Slice& slice) {
  ordered_json json;
  json["arm"] = slice.arm;
  json["seed"] = slice.seed;
  json["session_s"] = slice.session_s;
  json["round"] = slice.round;
  json["first_step"] = slice.first_step;
  json["last_step"] = slice.last_step;
  json["wall_s"] = slice.wall_s;
  if (!std::isnan(slice.energy_j)) {
    json["energy_j"] = slice.energy_j;
    json["energy_of"] = slice.energy_of;
  }
  json["peak_bytes"] = slice.peak_bytes;
  json["peak_holders"] = slice.peak_holders;
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Slice slice_from_json(std::string_view line, const std::string& where) {
  try {
    const ordered_json json = ordered_json::parse(line);
    Slice slice;
    json.at("arm").get_to(slice.arm);
    json.at("seed").get_to(slice.seed);
    json.at("session_s").get_to(slice.session_s);
    json.at("round").get_to(slice.round);
    json.at("first_step").get_to(slice.first_step);
    json.at("last_step").get_to(slice.last_step);
    json.at("wall_s").get_to(slice.wall_s);
    if (json.contains("energy_j")) {
      json.at("energy_j").get_to(slice.energy_j);
      slice.energy_of = json.value("energy_of", "processor packages");  // before GPUs were read
    }
    json.at("peak_bytes").get_to(slice.peak_bytes);
    json.at("peak_holders").get_to(slice.peak_holders);
    return slice;
  } catch (const nlohmann::json::exception&) {
    throw Corruption(concat(where,
                            ": not a slice of a comparison; the file is damaged: move it "
                            "away, and the comparison goes on without what it says"));
  }
}

SliceJournal::SliceJournal(const std::filesystem::path& path, FileSystem& files)
    : file_(path, path_exists(path, files) ? FileSystem::Open::append : FileSystem::Open::create,
            files) {
  const std::string bytes = existing(path, files);
  size_t begin = 0;
  int64_t number = 1;
  for (size_t end = bytes.find('\n'); end != std::string::npos; end = bytes.find('\n', begin)) {
    keep(slice_from_json(std::string_view(bytes).substr(begin, end - begin),
                         concat(path.string(), ": line ", number++)));
    begin = end + 1;
  }
  if (begin < bytes.size()) {
    file_.truncate(static_cast<int64_t>(begin));
  }
}

void SliceJournal::append(const Slice& slice) {
  file_.write_whole(to_json(slice) + "\n");
  keep(slice);
}

void SliceJournal::keep(const Slice& slice) {
  std::erase_if(slices_, [&](const Slice& earlier) {
    return earlier.arm == slice.arm && earlier.seed == slice.seed &&
           earlier.last_step >= slice.first_step;
  });
  slices_.push_back(slice);
}

}  // namespace mantissa::record
