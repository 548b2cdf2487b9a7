// Calibration: what is taken from the moments, and the files beside the model. Every broken file must be refused.
#include "engine/api/calibration.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "engine/execute/calibration_file.h"
#include "engine/execute/executor.h"
#include "gtest/gtest.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Files = EngineConfig::CalibrationFiles;

ModelConfig small_shape() {
  ModelConfig model;
  model.num_layers = 2;
  model.num_kv_heads = 1;
  model.num_heads = 2;
  model.head_dim = 4;
  return model;
}

ChannelMoments small_moments() {
  return {{16, 1, 0, 4, 1, 2, 3, 4}, {1, 16, 1, 4, 5, 6, 7, 8}, {12.7f, 0.0f}, {1.27f, 254.0f}};
}

// A copy of a bundled test model in a folder of its own.
class ModelFolder {
 public:
  ModelFolder()
      : path_(fs::path(testing::TempDir()) /
              ("calibration_" + std::to_string(getpid()) + "_" + std::to_string(++count()))) {
    fs::remove_all(path_);
    fs::copy(fs::path(ASSAY_TEST_DATA) / "models" / "llama_hd128", path_);
  }
  ~ModelFolder() {
    fs::permissions(path_, fs::perms::owner_all);
    fs::remove_all(path_);
  }
  std::string path() const { return path_.string(); }
  std::string file(CalibrationOrigin origin) const { return calibration_path(path(), origin); }

  EngineConfig config(Files files, std::vector<int32_t> tokens = {}) const {
    EngineConfig config;
    config.model_dir = path();
    config.kv_pool = "certified";
    config.threads = 1;
    config.max_num_batched_tokens = 128;
    config.max_model_len = 256;
    config.max_num_seqs = 2;
    config.kv_cache_memory_bytes = int64_t{16} << 20;
    config.calibration_files = files;
    config.calibration_tokens = std::move(tokens);
    return config;
  }

 private:
  static int& count() {
    static int count = 0;
    return count;
  }
  fs::path path_;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(OutlierPairs, AreThoseWithTheMostKeyEnergyInOrder) {
  ChannelMoments moments;
  //              pair 0  1  2  3 | 0  1  2  3        first head; then the second
  moments.key = {5, 1, 9, 2, 0, 7, 0, 2, /**/ 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(outlier_pairs_of(moments, 8, 2), (std::vector<int32_t>{1, 2, 0, 1}));
  EXPECT_EQ(outlier_pairs_of(moments, 8, 0), std::vector<int32_t>());
  EXPECT_EQ(outlier_pairs_of(moments, 8, 4), (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(StaticScales, MapTheLargestMagnitudeToTheLastLevel) {
  const PoolCalibration calibration = pool_calibration_of(small_moments(), 4, 1);
  EXPECT_FLOAT_EQ(calibration.key_scale.at(0), 0.1f);
  EXPECT_FLOAT_EQ(calibration.key_scale.at(1), 1.0f);  // only zeros were seen
  EXPECT_FLOAT_EQ(calibration.value_scale.at(1), 2.0f);
  EXPECT_EQ(calibration.outlier_pairs.size(), 2u);
  EXPECT_EQ(calibration.lambda.size(), 8u);
}

TEST(CalibrationFile, ReadsBackWhatWasWritten) {
  const ModelFolder folder;
  const std::string path = folder.file(CalibrationOrigin::kStart);
  ASSERT_TRUE(absl::IsNotFound(read_calibration(path, {1, 2}, small_shape()).status()));
  ASSERT_TRUE(write_calibration(path, {1, 2}, small_moments()).ok());
  const auto read = read_calibration(path, {1, 2}, small_shape());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->key, small_moments().key);
  EXPECT_EQ(read->query, small_moments().query);
  EXPECT_EQ(read->key_amax, small_moments().key_amax);
  EXPECT_EQ(read->value_amax, small_moments().value_amax);
}

TEST(CalibrationFile, RefusesEverythingElse) {
  const ModelFolder folder;
  const std::string path = folder.file(CalibrationOrigin::kStart);
  ASSERT_TRUE(write_calibration(path, {1, 2}, small_moments()).ok());
  const std::string good = read_file(path);
  EXPECT_FALSE(read_calibration(path, {1, 3}, small_shape()).ok()) << "another key";
  ModelConfig other = small_shape();
  std::swap(other.num_layers, other.num_kv_heads);  // the same size
  EXPECT_TRUE(read_calibration(path, {1, 2}, other).ok());
  other.head_dim = 8;
  EXPECT_FALSE(read_calibration(path, {1, 2}, other).ok()) << "another shape";
  for (size_t length = 0; length < good.size(); length += 7) {
    write_file(path, good.substr(0, length));
    EXPECT_FALSE(read_calibration(path, {1, 2}, small_shape()).ok()) << "cut at " << length;
  }
  write_file(path, good + "x");
  EXPECT_FALSE(read_calibration(path, {1, 2}, small_shape()).ok()) << "longer";
  for (size_t byte = 0; byte < good.size(); ++byte) {
    std::string damaged = good;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 0x40);
    write_file(path, damaged);
    EXPECT_FALSE(read_calibration(path, {1, 2}, small_shape()).ok()) << "a bit of byte " << byte;
  }
  fs::remove(path);
  fs::create_directory(path);
  const absl::Status folder_status = read_calibration(path, {1, 2}, small_shape()).status();
  EXPECT_FALSE(folder_status.ok() || absl::IsNotFound(folder_status)) << "a folder";
}

TEST(CalibrationFile, RefusesValuesThatNoPassCanFind) {
  const ModelFolder folder;
  const std::string path = folder.file(CalibrationOrigin::kStart);
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0}) {
    ChannelMoments moments = small_moments();
    moments.query[3] = bad;
    ASSERT_TRUE(write_calibration(path, {1, 2}, moments).ok());
    EXPECT_FALSE(read_calibration(path, {1, 2}, small_shape()).ok()) << bad;
    moments = small_moments();
    moments.value_amax[1] = static_cast<float>(bad);
    ASSERT_TRUE(write_calibration(path, {1, 2}, moments).ok());
    EXPECT_FALSE(read_calibration(path, {1, 2}, small_shape()).ok()) << bad;
  }
}

TEST(CalibrationFile, KeyKnowsModelTokensAndContext) {
  const ModelFolder folder;
  const auto key = [&](Files files, std::vector<int32_t> tokens, int32_t context, CalibrationOrigin origin) {
    EngineConfig config = folder.config(files, tokens);
    config.max_model_len = context;
    return *calibration_key(config, tokens, origin);
  };
  const auto start = CalibrationOrigin::kStart, own = CalibrationOrigin::kOperator;
  const CalibrationKey key_start = key(Files::kUse, {1, 2, 3}, 256, start),
                       key_own = key(Files::kUse, {1, 2, 3}, 256, own);
  EXPECT_EQ(key_start, key(Files::kIgnore, {1, 2, 3}, 256, start));
  EXPECT_NE(key_start, key(Files::kUse, {1, 2, 4}, 256, start));
  EXPECT_NE(key_start, key(Files::kUse, {1, 2, 3}, 128, start));
  EXPECT_EQ(key_own, key(Files::kUse, {1, 2, 4}, 128, own));
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    const bool matters = entry.path().extension() == ".safetensors" || entry.path().filename() == "config.json";
    if (!matters) continue;
    std::string text = read_file(entry.path());
    text.back() = static_cast<char>(text.back() + 1);
    write_file(entry.path(), text);
    EXPECT_NE(key_own, key(Files::kUse, {}, 256, own)) << entry.path();
    text.back() = static_cast<char>(text.back() - 1);
    write_file(entry.path(), text);
    EXPECT_EQ(key_own, key(Files::kUse, {}, 256, own));
  }
}

TEST(CalibrationAtStart, IsKeptAndUsedAgain) {
  const ModelFolder folder;
  const std::string kept = folder.file(CalibrationOrigin::kStart), own = folder.file(CalibrationOrigin::kOperator);
  EngineConfig config = folder.config(Files::kIgnore);
  ASSERT_TRUE(make_executor(config).ok());
  EXPECT_FALSE(fs::exists(kept));
  config = folder.config(Files::kUse);
  ASSERT_TRUE(make_executor(config).ok());
  ASSERT_TRUE(fs::exists(kept));
  const std::string first = read_file(kept);
  const auto written = fs::last_write_time(kept);
  config = folder.config(Files::kUse);
  config.threads = 2;
  config.max_num_batched_tokens = 64;
  ASSERT_TRUE(make_executor(config).ok());
  EXPECT_EQ(fs::last_write_time(kept), written);  // read, not made again
  fs::remove(kept);
  config = folder.config(Files::kUse);
  config.threads = 2;
  config.max_num_batched_tokens = 64;
  ASSERT_TRUE(make_executor(config).ok());
  EXPECT_EQ(read_file(kept), first);  // the same bytes with other threads and chunks
  write_file(kept, "nothing of use");
  config = folder.config(Files::kUse);
  ASSERT_TRUE(make_executor(config).ok());
  EXPECT_EQ(read_file(kept), first);
  EXPECT_FALSE(fs::exists(own));
}

TEST(CalibrationAtStart, AFolderThatMayNotBeWrittenIsLeftAlone) {
  const ModelFolder folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  EngineConfig config = folder.config(Files::kUse);
  EXPECT_TRUE(make_executor(config).ok());
  EXPECT_FALSE(fs::exists(folder.file(CalibrationOrigin::kStart)));
  config = folder.config(Files::kReplace);
  EXPECT_TRUE(absl::IsPermissionDenied(make_executor(config).status()));
}

TEST(CalibrationAtStart, TheOperatorsFileComesFirst) {
  const ModelFolder folder;
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 200; ++i) text.push_back(i * 7 % 50);
  EngineConfig config = folder.config(Files::kReplace, text);
  ASSERT_TRUE(make_executor(config).ok());
  ASSERT_TRUE(fs::exists(folder.file(CalibrationOrigin::kOperator)));
  config = folder.config(Files::kUse);  // other tokens
  ASSERT_TRUE(make_executor(config).ok());
  EXPECT_FALSE(fs::exists(folder.file(CalibrationOrigin::kStart)));
}

TEST(Cells, AreObservedLayerByLayer) {
  const ModelFolder folder;
  EngineConfig config = folder.config(Files::kIgnore);
  const auto made = make_executor(config);
  ASSERT_TRUE(made.ok());
  Executor& executor = **made;
  std::vector<int32_t> layers;
  kv::CellCounts seen;
  executor.observe_cells(
      [&](int32_t layer, std::span<const kv::MeteredRow> rows, std::span<const kv::CellVerdict> cells) {
        layers.push_back(layer);
        ASSERT_EQ(rows.size(), 1u);
        EXPECT_EQ(rows[0].position, 64);
        ASSERT_EQ(cells.size(), static_cast<size_t>(executor.model().num_heads));
        for (const kv::CellVerdict& cell : cells) seen.certified += cell.label == kv::CellLabel::kCertified;
        seen.metered += cells.size();
      });
  std::vector<int32_t> tokens, pages;
  for (int32_t i = 0; i < 65; ++i) tokens.push_back(i * 11 % 60);
  for (int32_t i = 0; i < 5; ++i) pages.push_back(i);
  SamplingParams sampling;
  sampling.temperature = 0;
  kv::SequenceMeter meter;
  for (const auto& [first, count] : {std::pair{0, 64}, {64, 1}}) {
    StepPlan plan;
    SequenceSlice slice;
    slice.tokens = tokens.data();
    slice.num_known_tokens = 65;
    slice.num_prompt_tokens = 64;
    slice.first_position = first;
    slice.num_tokens = plan.num_tokens = count;
    slice.pages = pages.data();
    slice.num_pages = 5;
    slice.sampling = &sampling;
    plan.slices.push_back(slice);
    const auto result = executor.execute(plan);
    ASSERT_TRUE(result.ok());
    meter = result->slices[0].meter;
  }
  ASSERT_EQ(layers.size(), static_cast<size_t>(executor.model().num_layers));
  for (size_t i = 0; i < layers.size(); ++i) EXPECT_EQ(layers[i], static_cast<int32_t>(i));
  EXPECT_EQ(seen.metered, meter.cells[0].metered);
  EXPECT_EQ(seen.certified, meter.cells[0].certified);
}

std::vector<int32_t> some_text(int32_t length) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back((i * i + 3 * i) % 61);
  return tokens;
}

TEST(CalibrateModel, WritesTheFileAndSaysWhatItHolds) {
  const ModelFolder folder;
  EngineConfig config = folder.config(Files::kIgnore, some_text(150));
  config.kv_pool = "exact";
  const auto summary = calibrate_model(config);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->file, folder.file(CalibrationOrigin::kOperator));
  EXPECT_TRUE(fs::exists(summary->file));
  EXPECT_EQ(summary->num_tokens, 150);
  ASSERT_EQ(summary->energy.size(), 3u);
  double last = 0;
  for (const auto& share : summary->energy) {
    EXPECT_GT(share.median, last);
    EXPECT_GE(share.largest, share.median);
    EXPECT_LE(share.largest, 1.0);
    last = share.median;
  }
  EXPECT_FALSE(calibrate_model(folder.config(Files::kIgnore)).ok()) << "no text";
}

TEST(ScoreMeter, MetersEveryStrideAsInDecoding) {
  const ModelFolder folder;
  EngineConfig config = folder.config(Files::kIgnore);
  ScoreOptions options;
  options.context = 100;
  options.stride = 16;
  int64_t last_done = 0;
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 150);
    EXPECT_GT(done, last_done);
    last_done = done;
  };
  const auto scores = score_meter(config, some_text(150), options);
  ASSERT_TRUE(scores.ok()) << scores.status().message();
  EXPECT_EQ(last_done, 150);
  EXPECT_EQ(scores->positions, 6 + 3);  // 16 to 96 of the first piece, 16 to 48 of the second
  const size_t heads = static_cast<size_t>(scores->num_layers * scores->num_heads);
  ASSERT_EQ(scores->raw.size(), 9 * heads);
  ASSERT_EQ(scores->value.size(), 9 * heads);
  EXPECT_TRUE(std::is_sorted(scores->raw.begin(), scores->raw.end()));
  EXPECT_GT(scores->raw.front(), 0.0);
  options.stride = 48;  // a larger step: position 48 of each piece reads the same stored rows
  options.progress = nullptr;
  const auto sparse = score_meter(config, some_text(150), options);
  ASSERT_TRUE(sparse.ok());
  EXPECT_EQ(sparse->positions, 2 + 1);
  options.stride = 200;
  EXPECT_FALSE(score_meter(config, some_text(150), options).ok());
}

}  // namespace
}  // namespace assay
