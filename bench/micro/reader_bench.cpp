// How fast the readers read, next to fio with the same record size, depth and mode.
//
//   reader_bench --fio FILE...
//
// Every line is the median of several rounds. The contestants take turns within a round, in an
// order of chance and after the same pause, so that what else runs on the machine hits them alike;
// the ratio to fio is taken within a round.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "io/measure_reader.h"
#include "io/uring_reader.h"

namespace moeflux {
namespace {

constexpr std::chrono::milliseconds kPause(300);  // disks with a budget of bandwidth recover

struct Arguments {
  std::vector<std::string> files;
  std::vector<std::size_t> kib = {128, 512, 2048, 8192, 24576};
  std::vector<int> depths = {1, 4, 16, 64};
  std::vector<std::string> modes = {"direct", "buffered"};
  double seconds = 1.0;
  int rounds = 3;
  bool fio = false;
};

struct Setting {
  bool direct;
  std::size_t record_bytes;
  int depth;
};

struct Sample {
  double bytes_per_second = 0;
  double records_per_second = 0;
  double cpu_seconds_per_gb = 0;
};

struct Contestant {
  std::string name;
  std::string rival;  // the contestant of fio it is compared with
  std::function<Sample(const Setting&)> run;
};

// Pages of the files leave the page cache, so that buffered rounds start cold, as those of fio do.
void drop_cache(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const File file(path);
    ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

Sample run_reader(const Arguments& arguments, ReaderKind kind, const Setting& setting) {
  drop_cache(arguments.files);
  ReaderOptions options;
  options.kind = kind;
  options.direct = setting.direct;
  options.queue_depth = options.threads = setting.depth;
  const ReadSpeed speed = measure_reader(arguments.files, options,
                                         {.record_bytes = setting.record_bytes,
                                          .records_in_flight = setting.depth,
                                          .max_seconds = arguments.seconds});
  return {speed.bytes_per_second(), speed.records_per_second(),
          speed.cpu_seconds / (static_cast<double>(speed.bytes) * 1e-9)};
}

double children_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  if (pipe == nullptr) fail(Errc::Io, "cannot run: {}", command);
  std::string text;
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe.get()))
    text.append(buffer, n);
  return text;
}

std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Sample run_fio(const Arguments& arguments, const char* engine_options, int depth_of_engine,
               const Setting& setting) {
  std::string names;
  for (const std::string& path : arguments.files) names += (names.empty() ? "" : ":") + path;
  const std::string command = fmt::format(
      // Huge pages for fio too: they decide how large the requests to the disk can be.
      "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=read --thread --rw=randread --norandommap "
      "--randrepeat=0 --filename={} --bs={} "
      "--direct={} "
      "--iodepth={} --numjobs={} {} --group_reporting --time_based --runtime={}ms "
      "--output-format=json",
      shell_quoted(names), setting.record_bytes, setting.direct ? 1 : 0, depth_of_engine,
      setting.depth / depth_of_engine, engine_options, static_cast<int>(arguments.seconds * 1000));
  const double cpu_start = children_cpu_seconds();
  const std::string text = output_of(command);
  const double cpu = children_cpu_seconds() - cpu_start;
  const Json report = parse_json(text, "output of fio");
  const Json& read = report.at("jobs").at(0).at("read");
  const double bytes = read.at("io_bytes").get<double>();
  return {read.at("bw_bytes").get<double>(), read.at("iops").get<double>(), cpu / (bytes * 1e-9)};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<Contestant> contestants(const Arguments& arguments) {
  std::vector<Contestant> all;
  const auto add_reader = [&](const char* name, const char* rival, ReaderKind kind) {
    all.push_back({name, rival, [&arguments, kind](const Setting& setting) {
                     return run_reader(arguments, kind, setting);
                   }});
  };
  if (open_uring(1).status == UringStatus::Used)
    add_reader("uring", "fio-uring", ReaderKind::Uring);
  add_reader("pool", "fio-psync", ReaderKind::Pool);
  if (!arguments.fio) return all;
  all.push_back({"fio-uring", "", [&](const Setting& setting) {
                   return run_fio(arguments, "--ioengine=io_uring --fixedbufs=1 --registerfiles=1",
                                  setting.depth, setting);
                 }});
  all.push_back({"fio-psync", "", [&](const Setting& setting) {
                   return run_fio(arguments, "--ioengine=psync", 1, setting);
                 }});
  return all;
}

void bench(const Arguments& arguments, const std::vector<Contestant>& all, const Setting& setting) {
  std::vector<std::vector<Sample>> samples(all.size());
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  static std::mt19937 random(1);
  for (int round = 0; round < arguments.rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      std::this_thread::sleep_for(kPause);
      samples[i].push_back(all[i].run(setting));
    }
  }
  const auto middle = [&](std::size_t i, double Sample::*field) {
    std::vector<double> values;
    for (const Sample& sample : samples[i]) values.push_back(sample.*field);
    return median(values);
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::string ratio = "-";
    for (std::size_t rival = 0; rival < all.size(); ++rival) {
      if (all[rival].name != all[i].rival) continue;
      std::vector<double> ratios;
      for (std::size_t round = 0; round < samples[i].size(); ++round) {
        ratios.push_back(samples[i][round].bytes_per_second /
                         samples[rival][round].bytes_per_second);
      }
      ratio = fmt::format("{:.2f}", median(ratios));
    }
    fmt::print("{:8} {:>9} {:5} {:10} {:8.2f} {:10.0f} {:9.3f} {:>7}\n",
               setting.direct ? "direct" : "buffered",
               fmt::format("{}K", setting.record_bytes >> 10), setting.depth, all[i].name,
               middle(i, &Sample::bytes_per_second) * 1e-9, middle(i, &Sample::records_per_second),
               middle(i, &Sample::cpu_seconds_per_gb), ratio);
  }
  std::fflush(stdout);
}

void run(const Arguments& arguments) {
  constexpr std::size_t kMaxInFlight = std::size_t{512} << 20;  // more would measure memory
  const std::vector<Contestant> all = contestants(arguments);
  fmt::print("{:8} {:>9} {:>5} {:10} {:>8} {:>10} {:>9} {:>7}\n", "mode", "size", "depth", "reader",
             "GB/s", "IOPS", "cpu s/GB", "to fio");
  for (const std::string& mode : arguments.modes) {
    for (const std::size_t kib : arguments.kib) {
      for (const int depth : arguments.depths) {
        const Setting setting{mode == "direct", kib << 10, depth};
        if (setting.record_bytes * static_cast<std::size_t>(depth) <= kMaxInFlight) {
          bench(arguments, all, setting);
        }
      }
    }
  }
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  moeflux::Arguments arguments;
  CLI::App app("Read bandwidth of the asynchronous readers");
  app.add_option("files", arguments.files, "files to read, larger than memory for buffered figures")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--kib", arguments.kib, "record sizes in KiB")->delimiter(',');
  app.add_option("--depths", arguments.depths, "records in flight")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  app.add_option("--modes", arguments.modes)
      ->delimiter(',')
      ->check(CLI::IsMember({"direct", "buffered"}));
  app.add_option("--seconds", arguments.seconds, "for one measurement")
      ->check(CLI::Range(0.05, 600.0));
  app.add_option("--rounds", arguments.rounds)->check(CLI::Range(1, 100));
  app.add_flag("--fio", arguments.fio, "compare with fio, which must be installed");
  CLI11_PARSE(app, argc, argv);
  try {
    moeflux::run(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "reader_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
