#include "engine/weights/checkpoint.h"

#include "engine/weights/dummy_weights.h"
#include "engine/weights/shard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/weights/safetensors_file.h"

namespace assay {
namespace {

using testing::HasSubstr;

std::string one_tensor(const std::string& name, const std::string& dtype = "F32") {
  const size_t bytes = dtype == "F32" ? 4 : dtype == "I8" ? 1 : 2;
  return safetensors_file("{\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[2,3],\"data_offsets\":[0," +
                              std::to_string(6 * bytes) + "]}}",
                          6 * bytes);
}

std::string problem_of(const TempFolder& folder) {
  const auto checkpoint = Checkpoint::open(folder.path());
  return checkpoint.ok() ? "no problem" : std::string(checkpoint.status().message());
}

TEST(Checkpoint, SingleFileInPlace) {
  TempFolder folder;
  folder.write("model.safetensors", one_tensor("w"));
  auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto w = (*checkpoint)->get("w", 2, 3);
  ASSERT_TRUE(w.ok());
  EXPECT_EQ(w->rows, 2);
  EXPECT_EQ(static_cast<const unsigned char*>(w->data)[5], 5);
}

TEST(Checkpoint, SaysWhatNobodyAskedFor) {
  TempFolder folder;
  folder.write("model.safetensors", one_tensor("w"));
  auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ((*checkpoint)->unused(), std::vector<std::string>{"w"});
  ASSERT_TRUE((*checkpoint)->get("w", 2, 3).ok());
  EXPECT_TRUE((*checkpoint)->unused().empty());
}

TEST(Checkpoint, UnalignedDataIsCopied) {
  TempFolder folder;
  for (int spaces = 0; spaces < 4; ++spaces) {
    const std::string header =
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}" + std::string(spaces, ' ');
    folder.write("model.safetensors", safetensors_file(header, 4));
    auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint.ok());
    const auto w = (*checkpoint)->get("w", 1, 1);
    ASSERT_TRUE(w.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(w->data) % 4, 0u);
    EXPECT_EQ(*w->f32(), std::bit_cast<float>(0x03020100u));
  }
}

TEST(Checkpoint, ShardsByIndex) {
  TempFolder folder;
  folder.write("one.safetensors", one_tensor("a"));
  folder.write("two.safetensors", one_tensor("b", "BF16"));
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ((*checkpoint)->get("b", 2, 3)->dtype, DType::kBF16);
}

TEST(Checkpoint, NamesWhatIsMissing) {
  TempFolder folder;
  EXPECT_THAT(problem_of(folder), HasSubstr("model.safetensors"));
  folder.write("one.safetensors", one_tensor("a"));
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  EXPECT_THAT(problem_of(folder), HasSubstr("two.safetensors"));
  folder.write("two.safetensors", one_tensor("c"));
  EXPECT_THAT(problem_of(folder), testing::AllOf(HasSubstr("\"b\""), HasSubstr("two.safetensors")));
  folder.write("two.safetensors", "");
  EXPECT_THAT(problem_of(folder), testing::AllOf(HasSubstr("two.safetensors"), HasSubstr("empty")));
}

TEST(Checkpoint, TensorsBesideTheIndexAreUsedAndTheIndexDecidesDuplicates) {
  TempFolder folder;
  folder.write("one.safetensors", one_tensor("a"));
  folder.write("two.safetensors", safetensors_file(R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                                                   R"("b":{"dtype":"F16","shape":[1],"data_offsets":[2,4]},)"
                                                   R"("extra":{"dtype":"F16","shape":[1],"data_offsets":[4,6]}})",
                                                   6));
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_TRUE((*checkpoint)->contains("extra"));
  EXPECT_TRUE((*checkpoint)->get("a", 2, 3).ok());
}

TEST(Checkpoint, RefusesBadIndexes) {
  TempFolder folder;
  folder.write("one.safetensors", one_tensor("a"));
  for (const auto& [index, message] : std::vector<std::pair<std::string, std::string>>{
           {"{", "not valid JSON"},
           {"{}", "weight_map"},
           {R"({"weight_map": []})", "weight_map"},
           {R"({"weight_map": {"a": 1}})", "not a string"},
           {R"({"weight_map": {"a": "../one.safetensors"}})", "not a file name"},
           {R"({"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}})", "twice"}}) {
    folder.write("model.safetensors.index.json", index);
    EXPECT_THAT(problem_of(folder), HasSubstr(message)) << index;
  }
}

TEST(Checkpoint, GetNamesTheTensor) {
  TempFolder folder;
  folder.write("model.safetensors", one_tensor("w", "I8"));
  auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_THAT(std::string((*checkpoint)->get("w", 2, 3).status().message()),
              testing::AllOf(HasSubstr("\"w\""), HasSubstr("I8")));
  EXPECT_THAT(std::string((*checkpoint)->get("v", 2, 3).status().message()), HasSubstr("\"v\""));
  folder.write("model.safetensors", one_tensor("w"));
  checkpoint = Checkpoint::open(folder.path());
  EXPECT_THAT(std::string((*checkpoint)->get("w", 3, 2).status().message()),
              testing::AllOf(HasSubstr("\"w\""), HasSubstr("[2, 3]"), HasSubstr("[3, 2]")));
}

TEST(DummyWeights, DependOnSeedAndNameAlone) {
  DummyWeights a(DType::kF32, 1), b(DType::kF32, 1), other(DType::kF32, 2);
  b.get("first", 3, 3).value();
  const float x = a.get("w", 10, 20)->f32()[7];
  EXPECT_EQ(b.get("w", 10, 20)->f32()[7], x);
  EXPECT_NE(other.get("w", 10, 20)->f32()[7], x);
  EXPECT_NE(a.get("v", 10, 20)->f32()[7], x);
  EXPECT_EQ(a.get("model.norm.weight", 1, 5)->f32()[4], 1.0f);
  double squares = 0.0;
  const ConstTensor w = *a.get("w", 100, 100);
  for (int64_t i = 0; i < 10000; ++i) squares += w.f32()[i] * w.f32()[i];
  EXPECT_NEAR(std::sqrt(squares / 10000), 0.02, 0.001);
}

TEST(Shard, SplitsAndReplicates) {
  const std::vector<float> data(48);
  const ConstTensor w(data.data(), DType::kF32, 8, 6, 6);
  const ConstTensor rows = Shard{1, 2}.rows(w, 4);
  EXPECT_EQ(rows.rows, 4);
  EXPECT_EQ(rows.f32(), data.data() + 24);
  const ConstTensor columns = Shard{2, 3}.columns(w, 6);
  EXPECT_EQ(columns.cols, 2);
  EXPECT_EQ(columns.row_stride, 6);
  EXPECT_EQ(columns.f32(), data.data() + 4);
  // Two KV heads on four ranks: ranks 0 and 1 hold the first.
  EXPECT_EQ((Shard{1, 4}.rows(w, 2).f32()), data.data());
  EXPECT_EQ((Shard{2, 4}.rows(w, 2).f32()), data.data() + 24);
  EXPECT_EQ((Shard{2, 4}.rows(w, 2).rows), 4);
}

}  // namespace
}  // namespace assay
