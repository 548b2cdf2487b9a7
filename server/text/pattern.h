// The `pattern` of Split and Replace: a literal string or a regular expression.
//
// Threads: a Pattern is immutable; a Finder has one owner and must not outlive its Pattern. Errors: LoadError from
// parse.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/text/json_node.h"
#include "server/text/regex.h"

namespace assay {

struct ByteRange {
  size_t begin;
  size_t end;
};

class Pattern {
 public:
  // {"String": "..."} or {"Regex": "..."}.
  static Pattern parse(const JsonNode& node);
  static Pattern regex(std::string_view expression);  // of our own: must compile

  class Finder {
   public:
    explicit Finder(const Pattern& pattern) : pattern_(&pattern) {}
    // All matches in `text`, left to right.
    void find(std::string_view text, std::vector<ByteRange>& matches);

   private:
    const Pattern* pattern_;
    std::optional<Regex::Matcher> matcher_;
  };

  // `text` with every match replaced by `content`, taken literally.
  std::string replace(std::string_view text, std::string_view content) const;

 private:
  std::variant<std::string, Regex> what_;
};

}  // namespace assay
