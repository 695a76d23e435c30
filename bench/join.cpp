#include "bench/join.h"

#include <algorithm>
#include <map>
#include <string>

#include "mantissa/base/error.h"

namespace mantissa::bench {

using nlohmann::json;

json join_runs(std::vector<json> runs) {
  MANTISSA_ASSERT(!runs.empty());
  json joined = runs.front();
  std::map<std::string, json> figures;
  std::vector<std::string> commits;
  for (const json& run : runs) {
    for (const char* key : {"cpu", "held_to_avx2", "libtorch"}) {
      MANTISSA_CHECK(run["machine"][key] == joined["machine"][key], InvalidArgument,
                     "bench: the files are of different runs, ", key, " is ",
                     joined["machine"][key].dump(), " and ", run["machine"][key].dump(),
                     "; show them one by one");
    }
    MANTISSA_CHECK(run["threads"] == joined["threads"], InvalidArgument,
                   "bench: the files are of different runs, threads are ", joined["threads"].dump(),
                   " and ", run["threads"].dump(), "; show them one by one");
    for (const json& figure : run["figures"]) {
      figures[figure["name"]] = figure;
    }
    for (const std::string commit : run["machine"]["commits"]) {
      if (std::find(commits.begin(), commits.end(), commit) == commits.end()) {
        commits.push_back(commit);
      }
    }
    if (run["machine"]["dirty"].get<bool>()) {
      joined["machine"]["dirty"] = true;
    }
    if (run.value("others_cpu_share", 0.0) > joined.value("others_cpu_share", 0.0)) {
      joined["others_cpu_share"] = run["others_cpu_share"];
    }
  }
  joined["machine"]["commits"] = commits;
  joined["figures"] = json::array();
  for (auto& [name, figure] : figures) {
    joined["figures"].push_back(std::move(figure));
  }
  return joined;
}

}  // namespace mantissa::bench
