// One sequence's tokens -> text that may be sent: never half a character, never a part of a stop string.
//
// Threads: one owner.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/text/detokenizer.h"
#include "server/text/stop_strings.h"
#include "server/text/tokenizer.h"

namespace assay {

struct SequenceTextOptions {
  std::vector<std::string> stop;
  // Stop strings that are special tokens, by id: the engine ends the sequence on the id, since skipped text is never seen.
  std::vector<std::pair<int32_t, std::string>> special_stops;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  int32_t min_tokens = 0;  // text of the first min_tokens tokens is not searched for stop strings
};

class SequenceText {
 public:
  SequenceText(std::shared_ptr<const Tokenizer> tokenizer, const SequenceTextOptions& options);

  // Text that became sendable with this token. After a stop string matched: nothing.
  std::string push(int32_t token);
  // The token that ended the sequence by its id: part of the text only with include_stop_str_in_output.
  std::string push_stop_token(int32_t token);
  // Everything held back. Call once, at the end.
  std::string finish();

  const std::optional<std::string>& matched_stop() const { return matched_stop_; }
  int32_t tokens() const { return tokens_; }  // pushed before the stop

 private:
  std::string filter(const std::string& text);

  SequenceTextOptions options_;
  Detokenizer detokenizer_;
  StopStrings stop_strings_;
  std::optional<std::string> matched_stop_;
  int32_t tokens_ = 0;
};

}  // namespace assay
