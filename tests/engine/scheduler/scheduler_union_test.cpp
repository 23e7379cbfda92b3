// What sharing a pass saves: every expert is asked for once for all rows that chose it. What each
// token chooses is known from running its job alone, so the requests of every shared pass are
// predicted, and must be exactly those made.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "engine/scheduler/scheduler_jobs.h"

namespace moeflux::test {
namespace {

using Choice = std::set<std::pair<int, std::int32_t>>;  // (layer, expert)

// Which experts each row of a pass chose.
class RouteObserver final : public ForwardObserver {
 public:
  void on_route(int layer, const std::int32_t* ids, const float*, std::int64_t n,
                int top_k) override {
    rows.resize(std::max(rows.size(), static_cast<std::size_t>(n)));
    for (std::int64_t i = 0; i < n * top_k; ++i)
      rows[static_cast<std::size_t>(i / top_k)].emplace(layer, ids[i]);
  }
  std::vector<Choice> rows;
};

// What is asked of the streamer in a pass.
class RequestCounter final : public RequestObserver {
 public:
  void on_step(int) override { requested.clear(); }
  void on_request(int bank, std::span<const int> experts) override {
    for (const int expert : experts) {
      EXPECT_TRUE(requested.emplace(bank, expert).second) << "asked for twice in one pass";
    }
  }
  std::set<std::pair<int, int>> requested;
};

class SchedulerUnionTest : public testing::TestWithParam<std::string> {
 protected:
  std::string path() const { return source_path("models/" + GetParam()); }

  // The choices of every position of a job that runs alone.
  std::vector<Choice> routes_alone(Engine& engine, const AnswerRequest& request) {
    RouteObserver observer;
    std::vector<Choice> routes;
    Scheduler scheduler(engine, {.observer = &observer});
    Submitted job(request);
    job.submit(scheduler);
    bool more = true;
    while (more) {
      observer.rows.clear();
      more = scheduler.step();
      routes.insert(routes.end(), observer.rows.begin(), observer.rows.end());
    }
    return routes;
  }
};

TEST_P(SchedulerUnionTest, APassRequestsTheUnionOfWhatItsTokensChoose) {
  Engine single(path(), scheduler_engine(1));
  Random random(29);
  std::vector<AnswerRequest> requests;
  std::vector<std::vector<Choice>> routes;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(random_job(random, random.integer(3, 50), 24));
    routes.push_back(routes_alone(single, requests.back()));
    ASSERT_EQ(routes.back().size(), requests.back().prompt.size() + 23);
  }

  double previous = 1e9;
  for (const int n_sessions : {1, 2, 4, 8}) {
    Engine engine(path(), scheduler_engine(n_sessions));
    RequestCounter counter;
    engine.experts().add_observer(&counter);
    Scheduler scheduler(engine, {.n_sessions = n_sessions, .slice_tokens = 16});
    std::map<JobId, std::size_t> index;
    std::vector<std::unique_ptr<Submitted>> jobs;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      jobs.push_back(std::make_unique<Submitted>(requests[i]));
      jobs.back()->submit(scheduler);
      index[jobs.back()->id] = i;
    }
    std::uint64_t n_predicted = 0, decode_experts = 0, decode_rows = 0;
    bool more = true;
    while (more) {
      const std::uint64_t before = scheduler.stats().experts_requested;
      more = scheduler.step();
      Choice predicted;
      bool decodes = true;
      for (const auto& part : scheduler.last_pass()) {
        const std::size_t job = index[part.job];
        const auto first = routes[job].begin() + part.position;
        for (auto row = first; row != first + part.n_rows; ++row)
          predicted.insert(row->begin(), row->end());
        decodes =
            decodes && part.position >= static_cast<std::int64_t>(requests[job].prompt.size());
      }
      n_predicted += predicted.size();
      ASSERT_EQ(counter.requested.size(), predicted.size());
      ASSERT_EQ(scheduler.stats().experts_requested - before, predicted.size());
      if (decodes && scheduler.last_pass().size() == static_cast<std::size_t>(n_sessions)) {
        decode_experts += predicted.size();
        decode_rows += scheduler.last_pass().size();
      }
    }
    EXPECT_EQ(scheduler.stats().experts_requested, n_predicted);
    ASSERT_GT(decode_rows, 0u);
    const double per_token = static_cast<double>(decode_experts) / static_cast<double>(decode_rows);
    EXPECT_LT(per_token, previous);
    previous = per_token;
    RecordProperty("experts_per_token_" + std::to_string(n_sessions), std::to_string(per_token));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SchedulerUnionTest, testing::Values("demo", "demo-mla"),
                         [](const auto& instance) {
                           return instance.param == "demo" ? "demo" : "demo_mla";
                         });

}  // namespace
}  // namespace moeflux::test
