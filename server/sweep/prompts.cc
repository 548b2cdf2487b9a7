#include "server/sweep/prompts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

namespace assay::sweep {
namespace {

using nlohmann::json;

constexpr double kTokenSlack = 1e-6;  // costs may be fractions (calibrated); sums of them round

// Distinct streams for the parts of one run, from one seed.
uint64_t mix(uint64_t seed, uint64_t stream) {
  std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(stream),
                         static_cast<uint32_t>(stream >> 32)};
  uint32_t words[2];
  sequence.generate(words, words + 2);
  return uint64_t{words[0]} << 32 | words[1];
}

absl::Status bad_line(size_t number, const std::string& what) {
  return absl::InvalidArgumentError("dataset line " + std::to_string(number) + ": " + what);
}

absl::StatusOr<DatasetEntry> parse_line(std::string_view line, size_t number) {
  const json document = json::parse(line, nullptr, false);
  if (!document.is_object()) return bad_line(number, "not a JSON object");
  DatasetEntry entry;
  const bool has_prompt = document.contains("prompt"), has_messages = document.contains("messages");
  if (has_prompt == has_messages) return bad_line(number, "needs either \"prompt\" or \"messages\"");
  if (has_prompt) {
    if (!document["prompt"].is_string()) return bad_line(number, "\"prompt\" is not a string");
    entry.prompt = document["prompt"].get<std::string>();
    if (entry.prompt.empty()) return bad_line(number, "\"prompt\" is empty");
  } else {
    const json& messages = document["messages"];
    if (!messages.is_array() || messages.empty()) return bad_line(number, "\"messages\" is not a list of messages");
    // Invalid UTF-8 was refused by the parser, so dumping cannot fail.
    entry.messages_json = messages.dump();
  }
  for (const char* name : {"max_tokens", "output_len"}) {
    if (!document.contains(name) || document[name].is_null()) continue;
    if (!document[name].is_number_integer() || document[name].get<int64_t>() < 1) {
      return bad_line(number, "\"" + std::string(name) + "\" is not a positive integer");
    }
    entry.output_tokens = document[name].get<int64_t>();
  }
  return entry;
}

}  // namespace

std::string make_words(const TokenCosts& costs, double tokens, uint64_t random_seed) {
  std::mt19937_64 random(random_seed);
  std::vector<const TokenCosts::Word*> by_cost;  // descending
  for (const TokenCosts::Word& word : costs.words) by_cost.push_back(&word);
  std::stable_sort(by_cost.begin(), by_cost.end(), [](auto* a, auto* b) { return a->tokens > b->tokens; });
  std::string text;
  double left = tokens + kTokenSlack;
  auto first = by_cost.begin();  // words before it cost more than what is left
  while (true) {
    first = std::find_if(first, by_cost.end(), [&](auto* word) { return word->tokens <= left; });
    if (first == by_cost.end()) return text;
    const TokenCosts::Word& word =
        **(first + static_cast<int64_t>(random() % static_cast<uint64_t>(by_cost.end() - first)));
    text.append(" ").append(word.text);
    left -= word.tokens;
  }
}

absl::StatusOr<std::vector<DatasetEntry>> parse_dataset(std::string_view jsonl) {
  std::vector<DatasetEntry> entries;
  size_t number = 0;
  while (!jsonl.empty()) {
    const size_t end = jsonl.find('\n');
    const std::string_view line = jsonl.substr(0, end);
    jsonl.remove_prefix(end == std::string_view::npos ? jsonl.size() : end + 1);
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    absl::StatusOr<DatasetEntry> entry = parse_line(line, number);
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  if (entries.empty()) return absl::InvalidArgumentError("dataset: no line with a prompt");
  return entries;
}

PromptSource::PromptSource(PromptPlan plan) : plan_(std::move(plan)) {
  const double tokens = static_cast<double>(plan_.shared_prefix_tokens);
  if (tokens > 0.0) shared_prefix_ = make_words(plan_.costs, tokens, mix(plan_.seed, ~uint64_t{0}));
}

DatasetEntry PromptSource::prompt(uint64_t index) const {
  if (!plan_.dataset.empty()) return plan_.dataset[index % plan_.dataset.size()];
  DatasetEntry entry;
  const uint64_t random_seed = mix(plan_.seed, index);
  if (!plan_.text.empty()) {
    constexpr double kDistinctLineTokens = 12.0;
    entry.prompt = make_words(plan_.costs, kDistinctLineTokens, random_seed) + "\n" + plan_.text;
    return entry;
  }
  const double own = static_cast<double>(plan_.input_tokens - plan_.shared_prefix_tokens) - plan_.costs.overhead;
  entry.prompt = shared_prefix_ + make_words(plan_.costs, own, random_seed);
  return entry;
}

}  // namespace assay::sweep
