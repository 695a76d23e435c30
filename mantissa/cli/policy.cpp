#include <iostream>
#include <map>
#include <memory>

#include <nlohmann/json.hpp>

#include "mantissa/amp/explanation.h"
#include "mantissa/amp/policy.h"
#include "mantissa/base/error.h"
#include "mantissa/cli/command.h"
#include "mantissa/report/text_table.h"

namespace mantissa::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string policy = "torch-fixed";
  std::string other;
  std::string operation;
  std::string scope;
  std::vector<std::string> formats;
  bool json = false;
};

std::string name_of(const auto& value) { return std::string(to_string(value)); }

void run_list(bool as_json) {
  ordered_json json = ordered_json::array();
  std::vector<std::vector<std::string>> rows;
  for (const amp::PolicySummary& policy : amp::shipped_policies()) {
    json.push_back({{"name", policy.name}, {"summary", policy.summary}});
    rows.push_back({policy.name, policy.summary});
  }
  if (as_json) {
    std::cout << json.dump() << "\n";
    return;
  }
  size_t width = 0;
  for (const auto& row : rows) {
    width = std::max(width, row[0].size());
  }
  for (const auto& row : rows) {
    std::cout << row[0] << std::string(width + 2 - row[0].size(), ' ') << row[1] << "\n";
  }
}

// Everywhere, and, as `aten::mm@GLOB`, in some scopes.
std::map<std::string, amp::ResolvedRule> all_rules(const amp::Policy& policy) {
  std::map<std::string, amp::ResolvedRule> rules = amp::resolved_rules(policy);
  for (const amp::ScopedRule& scoped : amp::scoped_rules(policy)) {
    rules.insert_or_assign(concat(scoped.operation, "@", scoped.glob), scoped.resolved);
  }
  return rules;
}

ordered_json json_of(const amp::Policy& policy) {
  ordered_json json;
  json["text"] = to_string(policy);
  json["base"] = policy.base;
  json["compute"] = name_of(policy.compute);
  json["param"] = name_of(policy.param);
  json["output"] = policy.output ? ordered_json(name_of(*policy.output)) : ordered_json();
  for (const amp::Fix fix : amp::kFixes) {
    const amp::FixWords words = amp::words(fix);
    json[std::string(words.name)] = policy.fixes.contains(fix) ? words.on : words.off;
  }
  json["scopes"] = ordered_json::object();
  for (const auto& [glob, format] : policy.scopes) {
    json["scopes"][glob] = name_of(format);
  }
  json["parameters"] = ordered_json::object();
  for (const auto& [glob, format] : policy.parameters) {
    json["parameters"][glob] = name_of(format);
  }
  json["rules"] = ordered_json::object();
  for (const auto& [operation, resolved] : all_rules(policy)) {
    json["rules"][operation] = {{"rule", name_of(resolved.rule)}, {"source", resolved.source}};
  }
  return json;
}

void run_show(const Options& options) {
  const amp::Policy policy = amp::find_policy(options.policy);
  if (options.json) {
    std::cout << json_of(policy).dump() << "\n";
    return;
  }
  std::cout << to_toml(policy) << "\n";
  std::vector<std::vector<std::string>> rows = {{"operation", "rule", "because of"}};
  for (const auto& [operation, resolved] : all_rules(policy)) {
    rows.push_back({operation, name_of(resolved.rule), resolved.source});
  }
  std::cout << report::text_table(rows);
}

std::string rule_in(const std::map<std::string, amp::ResolvedRule>& rules,
                    const std::string& operation) {
  const auto found = rules.find(operation);
  if (found == rules.end()) {
    return operation.find('@') == std::string::npos ? name_of(amp::Rule::keep) : "-";
  }
  return name_of(found->second.rule);
}

void run_diff(const Options& options) {
  const amp::Policy first = amp::find_policy(options.policy);
  const amp::Policy second = amp::find_policy(options.other);
  const auto first_rules = all_rules(first);
  const auto second_rules = all_rules(second);
  std::vector<std::vector<std::string>> rows;
  const auto compare = [&](const std::string& what, const std::string& a, const std::string& b) {
    if (a != b) {
      rows.push_back({what, a, b});
    }
  };
  compare("compute", name_of(first.compute), name_of(second.compute));
  compare("param", name_of(first.param), name_of(second.param));
  compare("output", first.output ? name_of(*first.output) : "as it is",
          second.output ? name_of(*second.output) : "as it is");
  for (const amp::Fix fix : {amp::Fix::reduce, amp::Fix::foreign}) {
    const amp::FixWords words = amp::words(fix);
    const auto word = [&](const amp::Policy& policy) {
      return std::string(policy.fixes.contains(fix) ? words.on : words.off);
    };
    compare(std::string(words.name), word(first), word(second));
  }
  const auto compare_globs = [&](const std::string& prefix, const auto& a, const auto& b) {
    auto all = a;
    all.insert(b.begin(), b.end());
    for (const auto& [glob, format] : all) {
      const auto text = [&glob = glob](const auto& globs) {
        const auto found = globs.find(glob);
        return found == globs.end() ? std::string("-") : name_of(found->second);
      };
      compare(prefix + glob, text(a), text(b));
    }
  };
  compare_globs("scope:", first.scopes, second.scopes);
  compare_globs("parameter:", first.parameters, second.parameters);
  auto both = first_rules;
  both.insert(second_rules.begin(), second_rules.end());
  for (const auto& [operation, resolved] : both) {
    compare(operation, rule_in(first_rules, operation), rule_in(second_rules, operation));
  }
  if (options.json) {
    ordered_json json = ordered_json::array();
    for (const auto& row : rows) {
      json.push_back({{"what", row[0]}, {"first", row[1]}, {"second", row[2]}});
    }
    std::cout << json.dump() << "\n";
    return;
  }
  if (rows.empty()) {
    std::cout << "no difference\n";
    return;
  }
  rows.insert(rows.begin(), {"", to_string(first), to_string(second)});
  std::cout << report::text_table(rows);
}

void run_check(const Options& options) {
  const amp::Policy policy = amp::find_policy(options.policy);
  const size_t num_rules = amp::resolved_rules(policy).size();
  if (options.json) {
    std::cout << ordered_json{{"policy", to_string(policy)}, {"operations", num_rules}}.dump()
              << "\n";
  } else {
    std::cout << "valid: " << to_string(policy) << ", " << num_rules << " operations have a rule\n";
  }
}

void run_explain(const Options& options) {
  const amp::Policy policy = amp::find_policy(options.policy);
  const auto explanations = amp::explain(policy, options.operation, options.formats, options.scope);
  ordered_json json = ordered_json::array();
  for (const amp::Explanation& explanation : explanations) {
    ordered_json arguments = ordered_json::array();
    std::string casts;
    for (const amp::ArgumentCast& argument : explanation.arguments) {
      arguments.push_back({{"name", argument.name}, {"from", argument.from}, {"to", argument.to}});
      casts += argument.from == argument.to
                   ? concat("  ", argument.name, ": ", argument.from, ", as it is\n")
                   : concat("  ", argument.name, ": ", argument.from, " -> ", argument.to, "\n");
    }
    json.push_back({{"operation", explanation.operation},
                    {"rule", name_of(explanation.rule)},
                    {"source", explanation.source},
                    {"arguments", arguments},
                    {"outcome", explanation.outcome},
                    {"note", explanation.note}});
    if (!options.json) {
      std::cout << explanation.operation << ": " << to_string(explanation.rule) << " ("
                << explanation.source << "): " << explanation.outcome << "\n"
                << casts << (explanation.note.empty() ? "" : concat("  ", explanation.note, "\n"));
    }
  }
  if (options.json) {
    std::cout << json.dump() << "\n";
  }
}

}  // namespace

void add_policy(CLI::App& app, int& /*exit_code*/) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("policy",
                         "Which operation runs in which format: list, show, compare, "
                         "check and explain policies");
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* description, auto callback) {
    CLI::App* sub = command->add_subcommand(name, description);
    sub->add_flag("--json", options->json, "as JSON, the last line of stdout");
    sub->callback([options, callback] { callback(*options); });
    return sub;
  };
  const char* const kPolicy =
      "a name (mantissa policy list), a name with changes (\"torch mm=fp32\"), or a file (.toml)";
  add("list", "The policies that can be a base",
      [](const Options& given) { run_list(given.json); });
  add("show", "All that a policy says, and why", run_show)
      ->add_option("POLICY", options->policy, kPolicy)
      ->required();
  CLI::App* diff = add("diff", "Where two policies differ", run_diff);
  diff->add_option("POLICY", options->policy, kPolicy)->required();
  diff->add_option("OTHER", options->other, kPolicy)->required();
  add("check", "Is a policy valid? Exit code 2 when not", run_check)
      ->add_option("POLICY", options->policy, kPolicy)
      ->required();
  CLI::App* explain = add("explain", "What happens to one operation, and why", run_explain);
  explain->add_option("OPERATION", options->operation, "mm, softmax.int, mylib::op")->required();
  explain
      ->add_option("FORMATS", options->formats,
                   "of its tensor arguments in order: fp32 bf16 fp16 fp64 int")
      ->required();
  explain->add_option("--policy", options->policy, kPolicy)->capture_default_str();
  explain->add_option("--scope", options->scope, "path of the module that calls it");
}

}  // namespace mantissa::cli
