// The `added_tokens` of tokenizer.json: texts that are one token wherever they occur, found before the model sees the
// text.
//
// Threads: immutable after the last add/index. Errors: LoadError from parse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/text/json_node.h"
#include "server/text/normalizer.h"

namespace assay {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string decoded;       // what it decodes to: the content, in normalised form if it is searched for in that
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = false;   // searched for in the normalised text, in normalised form
  bool special = false;      // dropped by skip_special_tokens

  static AddedToken parse(const JsonNode& node, int64_t largest_id);
};

// A stretch of text, or a token that was found in it.
struct Fragment {
  size_t begin;
  size_t end;
  int32_t id;  // -1: text
};

// Texts to look for; of those that start at one place the longest is found. The search is linear in the length of the
// text times the longest token.
class TokenTrie {
 public:
  void add(std::string_view text, int32_t index);
  // Index of the longest text at `text[at]` and its length; -1 when there is none.
  int32_t longest(std::string_view text, size_t at, size_t& length) const;
  bool may_start(char c) const { return starts_[static_cast<unsigned char>(c)]; }
  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    std::vector<std::pair<char, int32_t>> edges;
    int32_t index = -1;
  };
  int32_t child(int32_t node, char c) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<bool> starts_ = std::vector<bool>(256);
};

class AddedTokens {
 public:
  void add(AddedToken token);
  // Call once, after the last add.
  void index(const Normalizer& normalizer);

  // Cuts `text` at the tokens that are looked for before (`normalized` false) or after normalisation.
  std::vector<Fragment> split(std::string_view text, bool normalized) const;

  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  bool accept(const AddedToken& token, std::string_view text, size_t last, Fragment& match) const;

  std::vector<AddedToken> tokens_;
  TokenTrie raw_;
  TokenTrie normalized_;
};

}  // namespace assay
