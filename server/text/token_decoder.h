// The `decoder` of tokenizer.json: token texts -> running text, one token at a time.
//
// A decoder is a chain of filters. Text flows through them in parts of tokens; a part never ends inside a character.
// One chain serves whole and incremental decoding, so the two agree by construction. Threads: TokenDecoder is immutable
// and must outlive its chains; a chain has one owner. Errors: LoadError from parse.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/text/json_node.h"
#include "server/text/pattern.h"

namespace assay {

class TokenFilter {
 public:
  virtual ~TokenFilter() = default;
  virtual void text(std::string_view part) = 0;  // more of the current token
  virtual void end_token() = 0;
  virtual void finish() = 0;  // no more tokens
};

class TokenDecoder {
 public:
  TokenDecoder() = default;  // no decoder: tokens with a space between them
  static TokenDecoder parse(const JsonNode& node);

  // The bytes that one token stands for in running text, whatever comes before it.
  std::string token_bytes(std::string_view token) const;

  struct Space {};
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    char32_t content;
    size_t start;
    size_t stop;
  };
  struct Metaspace {
    char32_t replacement;
    bool drop_first;
  };

  // A decode in progress.
  class Chain {
   public:
    explicit Chain(const TokenDecoder& decoder);
    Chain(const Chain&) = delete;
    Chain& operator=(const Chain&) = delete;
    // Appends what became final.
    void push(std::string_view token, std::string& out);
    void finish(std::string& out);

   private:
    std::string pending_;
    std::vector<std::unique_ptr<TokenFilter>> filters_;  // last to first; they write to pending_
  };

 private:
  using Step = std::variant<Space, ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace>;

  void add(const JsonNode& node, int depth);

  std::vector<Step> steps_{Space{}};
};

}  // namespace assay
