// A random workload against an engine that is stepped by hand, with every invariant checked after every step.
// One seed decides everything: the engine's limits, the pool, the requests, what clients do, the clock.
//
// Threads: one. Errors: the first broken invariant, in words with the step it broke in.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/core/engine_impl.h"
#include "tests/sim/fake_executor.h"

namespace assay::test {

// What many runs have seen, so that a test can tell that the workload reaches what it is meant to reach.
struct WorkloadCounts {
  int64_t steps = 0, requests = 0, sequences = 0, refused_full = 0, preemptions = 0, prefix_hit_tokens = 0,
          restored_tokens = 0;
  int64_t positions_checked = 0, cancelled = 0, stopped = 0, overdue = 0, by_stop_id = 0, by_length = 0,
          prompt_scored = 0;
};

class Workload {
 public:
  explicit Workload(uint64_t seed);

  // Runs `num_steps` steps with arrivals, then until everything has ended. An empty string: all went well.
  std::string run(int32_t num_steps, WorkloadCounts& counts);

 private:
  // One client's view of one request.
  struct Client {
    std::unique_ptr<Stream> stream;
    Request request;
    std::vector<Continuation> expected;        // by sequence
    std::vector<std::vector<int32_t>> tokens;  // received so far, by sequence
    std::vector<bool> ended, stopped;
    bool cancelled = false;
    bool prompt_logprobs_seen = false;
    TimePoint submitted;
  };

  int32_t random(int32_t low, int32_t high) { return std::uniform_int_distribution<int32_t>(low, high)(random_); }
  bool chance(int32_t percent) { return random(1, 100) <= percent; }

  void make_engine();
  Request make_request();
  std::vector<int32_t> make_prompt();
  void arrive();
  void interfere();
  void receive(bool all);
  void take_event(Client& client, const Event& event);
  void take_ending(Client& client, const Event& event);
  void check_usage(const Client& client, const Event& event);
  void check_invariants();
  void check_progress();
  void check_order();
  void fail(const std::string& what);

  std::mt19937_64 random_;
  FakeModelOptions model_;
  EngineConfig config_;
  int32_t context_ = 0;  // tokens that fit, prompt + generated
  TimePoint now_{};
  FakeExecutor* executor_ = nullptr;  // owned by the engine
  std::unique_ptr<EngineImpl> engine_;
  std::vector<Client> clients_;
  std::vector<std::vector<int32_t>> seen_texts_;  // prompts and outputs to build later prompts from
  std::set<SequenceId> running_;                  // before the step
  SequenceId best_ = -1;                          // best-ranked live sequence
  int64_t best_waited_ = 0;                       // steps in which it was that and got nothing
  WorkloadCounts counts_;
  std::string failure_;
};

}  // namespace assay::test
