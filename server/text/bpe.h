// The byte-pair-encoding model: one piece of text -> ids.
//
// Starts from the characters (or, with byte_fallback, the bytes of unknown ones) and always joins the neighbours whose
// merge has the lowest rank, leftmost first. Time n log n in the length of the piece. Threads: immutable; a Scratch has
// one owner. Errors: LoadError from parse; encode cannot fail.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/text/json_node.h"
#include "server/text/merge_table.h"
#include "server/text/vocabulary.h"

namespace assay {

class Bpe {
 public:
  static constexpr int64_t kLargestId = (1 << 22) - 1;

  // Memory that is kept from piece to piece.
  struct Scratch {
    std::vector<int32_t> symbols;
    std::vector<uint32_t> ranks;
    std::vector<uint32_t> next;
    std::vector<uint32_t> previous;
    std::vector<uint64_t> heap;
  };

  // `node`: the `model` of tokenizer.json.
  static Bpe parse(const JsonNode& node);

  // Appends the ids of `piece` (valid UTF-8). Characters that the vocabulary cannot spell become the unknown token, or
  // nothing where there is none.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  void parse_vocabulary(const JsonNode& vocab);
  void parse_merges(const JsonNode& merges);
  void add_merge(const JsonNode& node, std::string_view left, std::string_view right, uint32_t rank);
  void parse_unknown(const JsonNode& node);
  void index_characters();
  void index_whole_tokens();

  int32_t whole_token(std::string_view piece) const;
  int32_t character_id(std::string_view piece, size_t begin, size_t end) const;
  bool append_bytes(std::string_view character, std::vector<int32_t>& symbols) const;
  void to_symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  void merge(std::span<int32_t> symbols, Scratch& scratch, std::vector<int32_t>& ids) const;
  void merge_short(std::span<int32_t> symbols, std::vector<int32_t>& ids) const;
  void merge_long(std::span<int32_t> symbols, Scratch& scratch, std::vector<int32_t>& ids) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::vector<int32_t> character_ids_;   // of single characters below U+10000
  std::array<int32_t, 256> byte_ids_{};  // of <0x00> ... <0xFF>
  std::vector<bool> encodes_to_itself_;  // by id: merging the token's text gives this one token
  size_t longest_whole_bytes_ = 0;
  int32_t unknown_id_ = -1;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

}  // namespace assay
