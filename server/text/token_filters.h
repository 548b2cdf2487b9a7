// The filters that token_decoder chains. Each passes on to `next`, which must outlive it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/text/token_decoder.h"

namespace assay {

std::unique_ptr<TokenFilter> make_sink(std::string& out);  // the end of a chain; `out` must outlive it
std::unique_ptr<TokenFilter> make_space_filter(TokenFilter& next);
std::unique_ptr<TokenFilter> make_byte_level_filter(TokenFilter& next);
std::unique_ptr<TokenFilter> make_byte_fallback_filter(TokenFilter& next);
std::unique_ptr<TokenFilter> make_fuse_filter(TokenFilter& next);
std::unique_ptr<TokenFilter> make_replace_filter(const TokenDecoder::Replace& step,
                                                 TokenFilter& next);  // step outlives it
std::unique_ptr<TokenFilter> make_strip_filter(const TokenDecoder::Strip& step, TokenFilter& next);
std::unique_ptr<TokenFilter> make_metaspace_filter(const TokenDecoder::Metaspace& step, TokenFilter& next);

// The byte of a token like <0x0A>.
std::optional<char> fallback_byte(std::string_view token);

}  // namespace assay
