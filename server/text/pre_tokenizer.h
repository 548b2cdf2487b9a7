// The `pre_tokenizer` of tokenizer.json: cuts a segment into the pieces that the model merges one by one.
//
// Threads: immutable. Errors: LoadError from parse; apply cannot fail. Steps run in order, each on every piece by
// itself, so a later step may cut (and see) what an earlier one has rewritten.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "server/text/json_node.h"
#include "server/text/normalizer.h"
#include "server/text/pattern.h"

namespace assay {

struct Piece {
  size_t begin;  // bytes of Pieces::text
  size_t end;
  bool at_origin;  // starts with the first character of the input
};

struct Pieces {
  explicit Pieces(Segment segment);
  std::string_view view(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }

  std::string text;
  std::vector<Piece> list;  // in order, none empty
};

// What becomes of the parts that match a pattern.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class PreTokenizer {
 public:
  PreTokenizer() = default;  // one piece
  static PreTokenizer parse(const JsonNode& node);
  void apply(Pieces& pieces) const;

  struct Split {
    Pattern pattern;
    SplitBehavior behavior;
    bool invert;
  };
  struct SplitChars {  // every character for which `is_match` holds is a match
    bool (*is_match)(char32_t);
    SplitBehavior behavior;
  };
  struct SplitDelimiter {
    char32_t delimiter;
    SplitBehavior behavior;
  };
  struct Words {};  // runs of word characters, runs of neither word nor space
  struct FixedLength {
    size_t characters;
  };
  struct PrefixSpace {};
  struct ByteLevel {};
  struct Metaspace {
    enum class Prepend { kAlways, kFirst, kNever };
    std::string replacement;
    Prepend prepend;
  };

 private:
  using Step = std::variant<Split, SplitChars, SplitDelimiter, Words, FixedLength, PrefixSpace, ByteLevel, Metaspace>;

  void add(const JsonNode& node, int depth);
  void add_byte_level(const JsonNode& node);
  void add_metaspace(const JsonNode& node);

  std::vector<Step> steps_;
};

}  // namespace assay
