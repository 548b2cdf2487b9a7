// The `post_processor` of tokenizer.json, as far as ids go: what is put around a text with add_special_tokens.
//
// Threads: immutable. Errors: LoadError from parse.
#pragma once

#include <cstdint>
#include <vector>

#include "server/text/json_node.h"

namespace assay {

class PostProcessor {
 public:
  PostProcessor() = default;  // adds nothing
  // Ids that the processor adds must be at most `largest_id`.
  static PostProcessor parse(const JsonNode& node, int64_t largest_id);
  std::vector<int32_t> apply(std::vector<int32_t> ids) const;

 private:
  static constexpr int32_t kText = -1;  // stands for the text in a template

  void add(const JsonNode& node, int64_t largest_id, int depth);
  void add_template(const JsonNode& node, int64_t largest_id);
  void add_pair(const JsonNode& node, int64_t largest_id);

  std::vector<std::vector<int32_t>> templates_;  // each goes around what the one before gave
};

}  // namespace assay
