// The `normalizer` of tokenizer.json: rewrites text before it is cut.
//
// Threads: immutable. Errors: LoadError from parse; apply cannot fail.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "server/text/json_node.h"
#include "server/text/pattern.h"
#include "server/text/unicode.h"

namespace assay {

// A stretch of text between added tokens.
struct Segment {
  std::string text;        // valid UTF-8
  bool at_origin = false;  // its first character comes from the first character of the input
};

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  static Normalizer parse(const JsonNode& node);
  void apply(Segment& segment) const;

  struct Prepend {
    std::string prefix;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    bool left;
    bool right;
  };
  struct Lowercase {};
  struct StripAccents {};  // all marks
  struct Nmt {};
  struct ByteLevel {};
  struct StripNonspacing {};  // of BertNormalizer: non-spacing marks only
  struct CleanText {};        // of BertNormalizer: control characters out, white space to spaces
  struct SpaceChinese {};     // of BertNormalizer: spaces around CJK ideographs

 private:
  using Step = std::variant<NormalForm, Prepend, Replace, Strip, Lowercase, StripAccents, Nmt, ByteLevel,
                            StripNonspacing, CleanText, SpaceChinese>;

  void add(const JsonNode& node, int depth);
  void add_bert(const JsonNode& node);

  std::vector<Step> steps_;
};

}  // namespace assay
