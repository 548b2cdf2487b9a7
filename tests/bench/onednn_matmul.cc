#include "tests/bench/onednn_matmul.h"

#ifdef ASSAY_ONEDNN
#include <dlfcn.h>

#include <memory>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#endif

namespace assay {

#ifdef ASSAY_ONEDNN
std::function<void()> make_onednn_matmul(int64_t m, int64_t n, int64_t k) {
  using dnnl::memory;
  if (auto* set_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set_threads(1);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const memory::desc x({m, k}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc w({k, n}, memory::data_type::f32, memory::format_tag::any);
  const memory::desc y({m, n}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x, w, y), engine);
  struct State {
    dnnl::matmul matmul;
    memory x, w, y;
    dnnl::stream stream;
  };
  auto state = std::make_shared<State>(State{dnnl::matmul(desc), memory(x, engine), memory(desc.weights_desc(), engine),
                                             memory(y, engine), dnnl::stream(engine)});
  for (memory* mem : {&state->x, &state->w}) {
    float* data = static_cast<float*>(mem->get_data_handle());
    for (size_t i = 0; i < mem->get_desc().get_size() / sizeof(float); ++i) data[i] = 0.01f * static_cast<float>(i % 7);
  }
  return [state] {
    state->matmul.execute(state->stream,
                          {{DNNL_ARG_SRC, state->x}, {DNNL_ARG_WEIGHTS, state->w}, {DNNL_ARG_DST, state->y}});
    state->stream.wait();
  };
}
#else
std::function<void()> make_onednn_matmul(int64_t, int64_t, int64_t) {
  return {};
}
#endif

}  // namespace assay
