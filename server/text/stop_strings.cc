#include "server/text/stop_strings.h"

#include <deque>

namespace assay {

StopStrings::StopStrings(const std::vector<std::string>& stops, bool include_stop_string)
    : nodes_(1), include_stop_string_(include_stop_string) {
  for (size_t i = 0; i < stops.size(); ++i) {
    lengths_.push_back(stops[i].size());
    if (!stops[i].empty()) insert(stops[i], static_cast<int>(i));
  }
  link();
}

int StopStrings::child(int node, unsigned char byte) const {
  for (const Edge& edge : nodes_[node].edges) {
    if (edge.byte == byte) return edge.node;
  }
  return -1;
}

void StopStrings::insert(std::string_view stop, int index) {
  int node = 0;
  for (const char c : stop) {
    const auto byte = static_cast<unsigned char>(c);
    int next = child(node, byte);
    if (next < 0) {
      next = static_cast<int>(nodes_.size());
      nodes_.emplace_back();
      nodes_[next].depth = nodes_[node].depth + 1;
      nodes_[node].edges.push_back({byte, next});
    }
    node = next;
  }
  if (nodes_[node].stop < 0) nodes_[node].stop = index;
}

// Breadth first, so that the failure links of shorter prefixes are there when they are needed.
void StopStrings::link() {
  std::deque<int> queue{0};
  while (!queue.empty()) {
    const int node = queue.front();
    queue.pop_front();
    for (const Edge& edge : nodes_[node].edges) {
      Node& next = nodes_[edge.node];
      next.fail = node == 0 ? 0 : step(nodes_[node].fail, edge.byte);
      if (next.stop < 0) next.stop = nodes_[next.fail].stop;
      queue.push_back(edge.node);
    }
  }
}

int StopStrings::step(int node, unsigned char byte) const {
  while (true) {
    const int next = child(node, byte);
    if (next >= 0) return next;
    if (node == 0) return 0;
    node = nodes_[node].fail;
  }
}

StopStrings::Output StopStrings::push(std::string_view piece) {
  if (done_) return {};
  Output output{std::move(held_), std::nullopt};
  held_.clear();
  for (size_t i = 0; i < piece.size(); ++i) {
    state_ = step(state_, static_cast<unsigned char>(piece[i]));
    const int stop = nodes_[state_].stop;
    if (stop < 0) continue;
    done_ = true;
    output.matched = static_cast<size_t>(stop);
    output.text.append(piece.substr(0, i + 1));
    if (!include_stop_string_) output.text.resize(output.text.size() - lengths_[stop]);
    return output;
  }
  output.text.append(piece);
  const size_t send = output.text.size() - nodes_[state_].depth;
  held_ = output.text.substr(send);
  output.text.resize(send);
  return output;
}

std::string StopStrings::finish() {
  std::string rest = done_ ? std::string() : std::move(held_);
  held_.clear();
  state_ = 0;
  return rest;
}

}  // namespace assay
