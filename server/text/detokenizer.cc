#include "server/text/detokenizer.h"

#include <utility>

namespace assay {

struct Detokenizer::State {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<DecodeStream> stream;
};

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens)
    : state_(std::make_unique<State>()) {
  state_->stream = tokenizer->decode_stream(skip_special_tokens);
  state_->tokenizer = std::move(tokenizer);
}

Detokenizer::~Detokenizer() = default;
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;

std::string Detokenizer::push(int32_t id) {
  std::string out;
  state_->stream->push(id, out);
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  state_->stream->finish(out);
  return out;
}

}  // namespace assay
