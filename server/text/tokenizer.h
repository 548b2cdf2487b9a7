// Text <-> token ids, from a Hugging Face `tokenizer.json` (plus `tokenizer_config.json` beside it).
//
// Threads: immutable after load; every method may be called from any thread.
// Errors: load says which file and which component it does not know; it never falls back to another tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace assay {

// One decode in progress; Detokenizer is its convenient form. Must not outlive its tokenizer. One owner.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  virtual void push(int32_t id, std::string& out) = 0;  // appends what became final
  virtual void finish(std::string& out) = 0;            // appends what was held back; call once
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // `dir`: folder with tokenizer.json; tokenizer_config.json, special_tokens_map.json and chat_template.jinja are read
  // where present. NotFound: no tokenizer.json. InvalidArgument: names the file and the field and says what would be
  // right.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> load(const std::string& dir);

  // UTF-8 text -> ids. Added tokens are recognised in the text as tokenizer.json says. `add_special_tokens` applies the
  // post-processor (BOS and the like), also where the text itself starts with BOS. Invalid UTF-8 is replaced by U+FFFD
  // first. Time n log n in the length of the text.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const = 0;

  // ids -> text by the tokenizer's own decoder. Bytes that are not UTF-8 become U+FFFD. Ids outside the vocabulary
  // decode to nothing. `skip_special_tokens` drops tokens marked special.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const = 0;

  // The same, id by id. Unless overridden, the token_bytes one after the other.
  virtual std::unique_ptr<DecodeStream> decode_stream(bool skip_special_tokens) const;

  // The token as the vocabulary spells it (for logprobs use token_bytes). Empty view when there is no such id.
  virtual std::string_view token_text(int32_t id) const = 0;
  // The bytes the token stands for in running text; may be a part of a character.
  virtual std::string token_bytes(int32_t id) const = 0;
  virtual std::optional<int32_t> token_id(std::string_view token) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  virtual int32_t vocab_size() const = 0;  // largest id + 1

  // From tokenizer_config.json (or the special tokens map); empty / none where not stated.
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;
  virtual const std::string& bos_token() const = 0;
  virtual const std::string& eos_token() const = 0;
  virtual const std::string& pad_token() const = 0;
  virtual const std::string& unk_token() const = 0;
  // From chat_template.jinja or tokenizer_config.json (the `default` one of several).
  virtual const std::string& chat_template() const = 0;
};

}  // namespace assay
