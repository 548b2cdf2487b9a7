// Token ids one at a time -> pieces of text that never end in half a character.
//
// Threads: one owner. Bound: holds at most one incomplete character or, for decoders that look at neighbours, a few
// tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/text/tokenizer.h"

namespace assay {

class Detokenizer {
 public:
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens);
  ~Detokenizer();
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;

  // Text that became final with this token; may be empty. The concatenation of all pieces and finish() equals
  // Tokenizer::decode of all ids.
  std::string push(int32_t id);

  // What was held back; an incomplete character becomes U+FFFD. Call once, at the end.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay
