#include "server/service/service_metrics.h"

#include <map>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "server/demo_server.h"

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

// The text format of Prometheus, read strictly: a family is its HELP, its TYPE and its samples,
// each family once; buckets of histograms grow, and the last is their count.
class PrometheusText {
 public:
  struct Family {
    std::string type;
    std::vector<std::pair<std::string, double>> samples;  // {"name{labels}", value}
  };

  explicit PrometheusText(const std::string& text) {
    EXPECT_TRUE(text.ends_with('\n'));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) read(line);
    for (const auto& [name, family] : families) check(name, family);
  }
  double value(const std::string& name) const { return families.at(name).samples.at(0).second; }

  std::map<std::string, Family> families;

 private:
  void read(const std::string& line) {
    std::istringstream words(line);
    std::string first, kind, name, rest;
    words >> first;
    if (first == "#") {
      words >> kind >> name;
      std::getline(words >> std::ws, rest);
      EXPECT_FALSE(rest.empty()) << line;
      if (kind == "HELP") {
        EXPECT_FALSE(families.contains(name)) << "twice: " << name;
        current_ = name;
        families[name];
      } else {
        EXPECT_EQ(kind, "TYPE") << line;
        EXPECT_EQ(name, current_) << line;
        EXPECT_TRUE(families[name].type.empty()) << line;
        families[name].type = rest;
      }
      return;
    }
    const std::string base = first.substr(0, first.find('{'));
    EXPECT_EQ(base.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_:"), std::string::npos);
    const std::string& type = families[current_].type;
    if (type == "histogram")
      EXPECT_EQ(base.rfind(current_ + "_", 0), 0u) << line;
    else
      EXPECT_EQ(base, current_) << line;
    double value = -1;
    words >> value;
    EXPECT_FALSE(words.fail()) << line;
    EXPECT_TRUE((words >> rest).fail()) << line;
    families[current_].samples.emplace_back(first, value);
  }

  static void check(const std::string& name, const Family& family) {
    static const std::set<std::string> types{"counter", "gauge", "histogram"};
    EXPECT_TRUE(types.contains(family.type)) << name;
    EXPECT_EQ(family.type == "counter", name.ends_with("_total")) << name;
    if (family.type != "histogram") {
      EXPECT_EQ(family.samples.size(), 1u) << name;
      return;
    }
    const std::size_t n = family.samples.size();
    ASSERT_GE(n, 4u) << name;
    double last_bound = -1, last_count = 0;
    for (std::size_t i = 0; i + 2 < n; ++i) {
      const std::string begin = name + "_bucket{le=\"";
      const auto& [sample, count] = family.samples[i];
      ASSERT_EQ(sample.rfind(begin, 0), 0u) << sample;
      const std::string bound = sample.substr(begin.size(), sample.size() - begin.size() - 2);
      EXPECT_EQ(bound == "+Inf", i + 3 == n) << sample;
      const double number =
          bound == "+Inf" ? std::numeric_limits<double>::infinity() : std::stod(bound);
      EXPECT_GT(number, last_bound) << sample;
      EXPECT_GE(count, last_count) << sample;
      last_bound = number;
      last_count = count;
    }
    EXPECT_EQ(family.samples[n - 2].first, name + "_sum");
    EXPECT_EQ(family.samples[n - 1].first, name + "_count");
    EXPECT_EQ(family.samples[n - 1].second, last_count) << name;
    EXPECT_EQ(family.samples[n - 2].second > 0, last_count > 0) << name;
  }

  std::string current_;
};

TEST(ServiceMetricsTest, TheTextIsWhatPrometheusReads) {
  DemoServer server;
  const PrometheusText before(server.get("/metrics").body);
  EXPECT_EQ(before.value("moeflux:requests_finished_total"), 0);
  EXPECT_EQ(server.post("/v1/chat/completions", sum_question()).status, 200);
  const ClientResponse response = server.get("/metrics");
  EXPECT_EQ(response.headers.at("content-type").rfind("text/plain; version=0.0.4", 0), 0u);
  const PrometheusText after(response.body);
  EXPECT_EQ(after.value("moeflux:requests_finished_total"), 1);
  EXPECT_EQ(after.value("moeflux:requests_running"), 0);
  EXPECT_EQ(after.value("moeflux:generated_tokens_total"), 10);
  const auto count = [&](const std::string& name) {
    return after.families.at(name).samples.back().second;
  };
  EXPECT_EQ(count("moeflux:time_to_first_token_seconds"), 1);
  EXPECT_EQ(count("moeflux:inter_token_seconds"), 9);
  EXPECT_EQ(count("moeflux:expert_read_seconds"), after.value("moeflux:expert_misses_total"));
  EXPECT_GT(count("moeflux:expert_read_seconds"), 0);
}

TEST(JoinMetricsTest, LinesOfANameStandTogether) {
  const std::string text =
      "# HELP a b c\n# TYPE a counter\na 1\n# HELP h x\n# TYPE h histogram\n"
      "h_bucket{le=\"1\"} 2\nh_sum 3\n";
  EXPECT_EQ(
      join_metrics({{"m", text}, {"n\"", text}}),
      "# HELP a b c\n# TYPE a counter\na{model=\"m\"} 1\na{model=\"n\\\"\"} 1\n"
      "# HELP h x\n# TYPE h histogram\nh_bucket{model=\"m\",le=\"1\"} 2\n"
      "h_sum{model=\"m\"} 3\nh_bucket{model=\"n\\\"\",le=\"1\"} 2\nh_sum{model=\"n\\\"\"} 3\n");
  EXPECT_EQ(join_metrics({}), "");
}

}  // namespace
}  // namespace moeflux::test
