// Every kind of component against rows of the format's own implementation. tests/data/tokenizers/components.json holds,
// for each case, a base tokenizer, the fields that replace some of its own, and for each text a row: ids, ids with
// special tokens (null: the same), decoded, decoded without special tokens (null: the same).
#include <gtest/gtest.h>

#include "server/text/detokenizer.h"
#include "tests/unit/text/toy_tokenizers.h"

namespace assay {
namespace {

using Ids = std::vector<int32_t>;

const nlohmann::json& components() {
  static const nlohmann::json root = read_test_json("components.json");
  return root;
}

std::string stream(const std::shared_ptr<const Tokenizer>& tokenizer, const Ids& ids, bool skip) {
  Detokenizer detokenizer(tokenizer, skip);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

TEST(TokenizerComponents, AgreeWithTheReferenceRows) {
  const auto texts = components().at("texts").get<std::vector<std::string>>();
  ASSERT_GT(components().at("cases").size(), 50u);
  for (const auto& test : components().at("cases")) {
    SCOPED_TRACE(test.at("name").get<std::string>());
    const auto tokenizer = toy(test.at("base"), test.at("patch"));
    ASSERT_EQ(test.at("rows").size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto& row = test.at("rows")[i];
      const auto ids = row[0].get<Ids>();
      const auto with_special = row[1].is_null() ? ids : row[1].get<Ids>();
      EXPECT_EQ(tokenizer->encode(texts[i], false), ids) << texts[i];
      EXPECT_EQ(tokenizer->encode(texts[i], true), with_special) << texts[i];
      const auto decoded = row[2].get<std::string>();
      const auto skipped = row[3].is_null() ? decoded : row[3].get<std::string>();
      EXPECT_EQ(tokenizer->decode(with_special, false), decoded);
      EXPECT_EQ(tokenizer->decode(with_special, true), skipped);
      EXPECT_EQ(stream(tokenizer, with_special, false), decoded);
      EXPECT_EQ(stream(tokenizer, with_special, true), skipped);
    }
  }
}

}  // namespace
}  // namespace assay
