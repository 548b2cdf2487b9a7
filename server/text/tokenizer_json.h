// The tokenizer of a tokenizer.json that is already in memory.
#pragma once

#include <memory>
#include <string_view>

#include "server/text/tokenizer.h"
#include "server/text/tokenizer_config.h"

namespace assay {

// InvalidArgument, with the path of the field, for everything that is wrong with the text.
absl::StatusOr<std::shared_ptr<const Tokenizer>> parse_tokenizer_json(std::string_view tokenizer_json,
                                                                      TokenizerConfig config);

}  // namespace assay
