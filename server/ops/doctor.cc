#include "server/ops/doctor.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "server/config/load.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Verdict = CheckResult::Verdict;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

bool is_json(const fs::path& path) {
  std::ifstream file(path);
  return nlohmann::json::accept(file);
}

int64_t weight_bytes(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") bytes += static_cast<int64_t>(entry.file_size(error));
  }
  return bytes;
}

// MemAvailable of /proc/meminfo, in bytes.
int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("MemAvailable:", 0) == 0) return std::stoll(line.substr(13)) * 1024;
  }
  return 0;
}

CheckResult check_model(const ServeConfig& config) {
  CheckResult result{Verdict::kBad, "model folder", ""};
  if (absl::Status status = check_config(config); !status.ok()) {
    result.finding = std::string(status.message());
    return result;
  }
  for (const char* name : {"config.json", "tokenizer.json"}) {
    const std::string folder = name[0] == 't' && !config.tokenizer.empty() ? config.tokenizer : config.model;
    const fs::path path = fs::path(folder) / name;
    if (!is_json(path)) {
      result.finding = fmt::format("{} is missing, cannot be read or is not JSON", path.string());
      return result;
    }
  }
  const int64_t bytes = weight_bytes(config.model);
  if (bytes == 0 && config.load_format != "dummy") {
    result.finding = fmt::format("{} holds no .safetensors file", config.model);
    return result;
  }
  result.verdict = Verdict::kGood;
  result.finding = fmt::format("{}: {:.2f} GiB of weights", config.model, static_cast<double>(bytes) / kGiB);
  return result;
}

CheckResult check_memory(const ServeConfig& config) {
  const int64_t available = available_memory();
  const int64_t needed = (config.model.empty() ? 0 : weight_bytes(config.model)) + config.kv_cache_memory.bytes;
  CheckResult result{Verdict::kGood, "memory", fmt::format("{:.1f} GiB available", static_cast<double>(available) / kGiB)};
  if (needed > available) {
    result.verdict = Verdict::kBad;
    result.finding += fmt::format(", but weights and cache want {:.1f} GiB", static_cast<double>(needed) / kGiB);
  }
  return result;
}

CheckResult check_cpu() {
  CheckResult result{Verdict::kGood, "CPU", fmt::format("{} cores", std::thread::hardware_concurrency())};
#if defined(__x86_64__)
  std::string features;
  if (__builtin_cpu_supports("avx2")) features += " AVX2";
  if (__builtin_cpu_supports("fma")) features += " FMA";
  if (__builtin_cpu_supports("avx512f")) features += " AVX-512";
  if (__builtin_cpu_supports("avx512bf16")) features += " BF16";
  if (features.empty()) result.verdict = Verdict::kWarning;
  result.finding += features.empty() ? "; no AVX2, so expect it to be slow" : ";" + features;
#endif
  return result;
}

// Binds and lets go again.
CheckResult check_port(const std::string& host, int32_t port) {
  CheckResult result{Verdict::kGood, fmt::format("port {}", port), "free"};
  const int handle = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  ::setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (handle < 0 || ::bind(handle, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    result.verdict = Verdict::kBad;
    result.finding = fmt::format("cannot be taken: {}", std::error_code(errno, std::generic_category()).message());
  }
  if (handle >= 0) ::close(handle);
  return result;
}

CheckResult check_descriptors(const ServeConfig& config) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  CheckResult result{Verdict::kGood, "file descriptors", fmt::format("up to {}", limit.rlim_max)};
  if (limit.rlim_max < static_cast<rlim_t>(config.max_connections) + 128) {
    result.verdict = Verdict::kWarning;
    result.finding += fmt::format(", fewer than --max-connections {} may need", config.max_connections);
  }
  return result;
}

}  // namespace

std::vector<CheckResult> run_checks(const ServeConfig& config) {
  std::vector<CheckResult> results;
  if (!config.model.empty()) results.push_back(check_model(config));
  results.push_back(check_memory(config));
  results.push_back(check_cpu());
  results.push_back(check_port(config.host, config.port));
  if (config.metrics_port != 0) results.push_back(check_port(config.host, config.metrics_port));
  results.push_back(check_descriptors(config));
  return results;
}

std::string checks_text(const std::vector<CheckResult>& results) {
  std::string text;
  for (const CheckResult& result : results) {
    const char* verdict = result.verdict == Verdict::kGood ? "good" : result.verdict == Verdict::kWarning ? "note" : "BAD";
    text += fmt::format("{:<5} {:<17} {}\n", verdict, result.name, result.finding);
  }
  return text;
}

}  // namespace assay
