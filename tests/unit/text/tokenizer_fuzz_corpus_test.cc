// The fuzz driver over its corpus, and over damaged copies of it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace assay {
namespace {

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

TEST(TokenizerJsonFuzz, CorpusAndDamagedCopies) {
  std::mt19937 random(11);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ASSAY_SOURCE_DIR "/tests/fuzz/corpus/tokenizer_json")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    ++files;
    run(bytes);
    for (int round = 0; round < 300 && !bytes.empty(); ++round) {
      std::string damaged = bytes;
      for (size_t n = 1 + random() % 3; n > 0; --n)
        damaged[random() % damaged.size()] = "\"{}[],:0a\xFF"[random() % 10];
      if (random() % 8 == 0) damaged.resize(random() % damaged.size());
      run(damaged);
    }
  }
  EXPECT_GE(files, 6u);
}

}  // namespace
}  // namespace assay
