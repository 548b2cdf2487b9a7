#include "server/service/sequence_text.h"

namespace assay {

SequenceText::SequenceText(std::shared_ptr<const Tokenizer> tokenizer, const SequenceTextOptions& options)
    : options_(options),
      detokenizer_(std::move(tokenizer), options.skip_special_tokens),
      stop_strings_(options.stop, options.include_stop_str_in_output) {}

std::string SequenceText::filter(const std::string& text) {
  StopStrings::Output output = stop_strings_.push(text);
  if (output.matched) matched_stop_ = options_.stop.at(*output.matched);
  return std::move(output.text);
}

std::string SequenceText::push(int32_t token) {
  if (matched_stop_) return "";
  ++tokens_;
  const std::string text = detokenizer_.push(token);
  return tokens_ <= options_.min_tokens ? text : filter(text);
}

std::string SequenceText::push_stop_token(int32_t token) {
  if (!options_.include_stop_str_in_output || matched_stop_) return "";
  for (const auto& [id, text] : options_.special_stops) {
    // The client named this string, so it is shown even where other special tokens are skipped.
    if (id == token) return finish() + text;
  }
  return push(token);
}

std::string SequenceText::finish() {
  if (matched_stop_) return "";
  std::string text = filter(detokenizer_.finish());
  return text + stop_strings_.finish();
}

}  // namespace assay
