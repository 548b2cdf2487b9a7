// Which prompts a level sends: made of words to a token count, read from a data set, or one given text.
//
// A made prompt is a pure function of (seed, index): it does not depend on timing, and no two requests of a run share a
// prefix unless one is asked for, so that prefix caching cannot flatter a server.
//
// Threads: PromptSource::prompt may be called from one thread at a time. Errors: as each function says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace assay::sweep {

// Common words; most tokenizers have each of them, after a space, as one token.
const std::vector<std::string>& candidate_words();

// What a word costs at this server's tokenizer.
struct TokenCosts {
  struct Word {
    std::string text;
    double tokens = 1.0;  // when it follows a space
  };
  std::vector<Word> words;  // not empty
  double overhead = 0.0;    // tokens that every request has besides its words (start token, chat template)
  std::string method;       // "tokenize", "usage" or "estimate", for the report
};

// Words for `tokens` tokens, closest from below, drawn from `random_seed`, joined and preceded by spaces.
std::string make_words(const TokenCosts& costs, double tokens, uint64_t random_seed);

// One line of a data set: exactly one of the two is set.
struct DatasetEntry {
  std::string prompt;
  std::string messages_json;             // a JSON array
  std::optional<int64_t> output_tokens;  // "max_tokens" or "output_len" of the line
};

// Lines of {"prompt": "..."} or {"messages": [...]}; empty lines are skipped. InvalidArgument names the line and the
// field.
absl::StatusOr<std::vector<DatasetEntry>> parse_dataset(std::string_view jsonl);

struct PromptPlan {
  uint64_t seed = 0;
  int64_t input_tokens = 1024;       // of the whole request, overhead included
  int64_t shared_prefix_tokens = 0;  // of them, equal in every request
  TokenCosts costs;
  std::vector<DatasetEntry> dataset;  // if not empty, its lines in order, from the start again when it ends
  std::string text;                   // if not empty, this text after a distinct first line
};

class PromptSource {
 public:
  explicit PromptSource(PromptPlan plan);

  // The prompt of the run's request number `index`, counted over all levels and warm-ups.
  DatasetEntry prompt(uint64_t index) const;

 private:
  PromptPlan plan_;
  std::string shared_prefix_;
};

}  // namespace assay::sweep
