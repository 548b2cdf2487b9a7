// Published tokenizers against ids and texts of the field's reference implementation. Both are other people's work and stay out
// of the repository; where they are absent the tests are skipped by name.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "server/text/detokenizer.h"
#include "server/text/tokenizer.h"
#include "tests/unit/text/reference_data.h"

namespace assay {
namespace {

using Ids = std::vector<int32_t>;

// One load per tokenizer and process.
std::shared_ptr<const Tokenizer> published(const std::string& name) {
  static std::map<std::string, std::shared_ptr<const Tokenizer>> loaded;
  auto& tokenizer = loaded[name];
  if (!tokenizer) tokenizer = Tokenizer::load((reference_data() / "tokenizers" / name).string()).value();
  return tokenizer;
}

class PublishedTokenizer : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(reference_data() / "tokenizers" / GetParam())) {
      GTEST_SKIP() << "no reference data: tokenizers/" << GetParam();
    }
  }
  const Tokenizer& tokenizer() const { return *published(GetParam()); }
};

TEST_P(PublishedTokenizer, EveryReferenceRow) {
  std::ifstream file(reference_data() / "golden" / "tokens.json");
  const auto rows = nlohmann::json::parse(file).at(GetParam());
  ASSERT_GT(rows.size(), 100u);
  for (const auto& row : rows) {
    const auto text = row.at("text").get<std::string>();
    const auto ids = row.at("ids").get<Ids>();
    const auto ids_with_special = row.at("ids_with_special").get<Ids>();
    EXPECT_EQ(tokenizer().encode(text, false), ids) << text;
    EXPECT_EQ(tokenizer().encode(text, true), ids_with_special) << text;
    EXPECT_EQ(tokenizer().decode(ids, false), row.at("decoded").get<std::string>());
    EXPECT_EQ(tokenizer().decode(ids, true), row.at("decoded_skip_special").get<std::string>());
  }
}

TEST_P(PublishedTokenizer, TheStreamSaysWhatDecodeSays) {
  std::ifstream file(reference_data() / "golden" / "tokens.json");
  for (const auto& row : nlohmann::json::parse(file).at(GetParam())) {
    const auto ids = row.at("ids_with_special").get<Ids>();
    for (const bool skip : {false, true}) {
      Detokenizer detokenizer(published(GetParam()), skip);
      std::string streamed;
      for (const int32_t id : ids) streamed += detokenizer.push(id);
      EXPECT_EQ(streamed + detokenizer.finish(), tokenizer().decode(ids, skip));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PublishedTokenizer, testing::Values("qwen2_5", "qwen3", "llama3_1", "mistral_v0_1"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace assay
