#include "server/text/tokenizer.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "server/text/tokenizer_config.h"
#include "server/text/tokenizer_json.h"
#include "server/text/utf8.h"

namespace assay {
namespace {

constexpr uintmax_t kLargestFileBytes = uintmax_t{512} << 20;

class BytesStream : public DecodeStream {
 public:
  BytesStream(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  void push(int32_t id, std::string& out) override {
    if (skip_special_tokens_ && tokenizer_.is_special(id)) return;
    assembler_.push(tokenizer_.token_bytes(id), out);
  }
  void finish(std::string& out) override { assembler_.finish(out); }

 private:
  const Tokenizer& tokenizer_;
  Utf8Assembler assembler_;
  bool skip_special_tokens_;
};

// Nothing when there is no such file.
std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kLargestFileBytes)
    throw LoadError(fmt::format("cannot be read, or is above {} bytes", kLargestFileBytes));
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) throw LoadError("cannot be read");
  return text;
}

std::optional<nlohmann::json> read_json(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) return std::nullopt;
  auto root = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) throw LoadError(fmt::format("{}: is not JSON", path.filename().string()));
  return root;
}

TokenizerConfig read_config(const std::filesystem::path& dir) {
  TokenizerConfig config;
  if (auto text = read_file(dir / "chat_template.jinja")) config.chat_template = replace_invalid_utf8(*text);
  if (const auto root = read_json(dir / "tokenizer_config.json")) {
    const JsonNode node(*root, "tokenizer_config.json");
    config.merge_tokens(node);
    config.merge_chat_template(node);
  }
  if (const auto root = read_json(dir / "special_tokens_map.json")) {
    config.merge_tokens(JsonNode(*root, "special_tokens_map.json"));
  }
  return config;
}

}  // namespace

std::unique_ptr<DecodeStream> Tokenizer::decode_stream(bool skip_special_tokens) const {
  return std::make_unique<BytesStream>(*this, skip_special_tokens);
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string& dir) {
  try {
    const auto text = read_file(std::filesystem::path(dir) / "tokenizer.json");
    if (!text) return absl::NotFoundError(fmt::format("{}: there is no tokenizer.json in this folder", dir));
    auto tokenizer = parse_tokenizer_json(*text, read_config(dir));
    if (tokenizer.ok()) return tokenizer;
    return absl::Status(tokenizer.status().code(),
                        fmt::format("{}: {}", dir, std::string(tokenizer.status().message())));
  } catch (const LoadError& error) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", dir, error.what()));
  }
}

}  // namespace assay
