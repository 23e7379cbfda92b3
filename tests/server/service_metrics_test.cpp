#include "server/service_metrics.h"

#include <gtest/gtest.h>

namespace moeflux::test {
namespace {

TEST(HistogramTest, BucketsAreCumulativeInTheText) {
  Histogram histogram({0.5, 1});
  for (const double value : {0.1, 0.5, 0.7, 4.0}) histogram.add(value);
  EXPECT_EQ(histogram.text("h", "what"),
            "# HELP h what\n# TYPE h histogram\nh_bucket{le=\"0.5\"} 2\nh_bucket{le=\"1\"} 3\n"
            "h_bucket{le=\"+Inf\"} 4\nh_sum 5.3\nh_count 4\n");
}

TEST(ServiceMetricsTest, JobsAreCountedByHowTheyEnded) {
  ServiceMetrics metrics;
  metrics.add_ended(false, false, {.n_prompt = 10, .n_cached = 4, .n_tokens = 3});
  metrics.add_ended(true, false, {.n_prompt = 1});
  metrics.add_ended(false, true, {});
  metrics.set_engine({.hits = 7, .misses = 2});
  const std::string text = metrics.text({.passes = 5, .n_waiting = 1, .n_running = 2}, 3);
  for (const char* line :
       {"\nmoeflux:requests_finished_total 1\n", "\nmoeflux:requests_cancelled_total 1\n",
        "\nmoeflux:requests_failed_total 1\n", "\nmoeflux:prompt_tokens_total 11\n",
        "\nmoeflux:prompt_tokens_cached_total 4\n", "\nmoeflux:generated_tokens_total 3\n",
        "\nmoeflux:requests_running 2\n", "\nmoeflux:requests_waiting 1\n",
        "\nmoeflux:connections 3\n", "\nmoeflux:expert_hits_total 7\n",
        "\n# TYPE moeflux:expert_hits_total counter\n", "moeflux:queue_seconds_count 3\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
}

}  // namespace
}  // namespace moeflux::test
