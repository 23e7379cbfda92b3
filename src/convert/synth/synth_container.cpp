// A synthetic model as a container.
#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/thread_pool.h"
#include "convert/container_writer.h"
#include "convert/synth/synth_files.h"
#include "families/family.h"
#include "quant/interleave.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

// More pages than a conversion's may wait for the disk: what a kill loses is quickly made again.
constexpr std::uint64_t kCheckpointBytes = 1u << 30;
// Each thread has a record in memory.
constexpr std::uint64_t kMaxRecordBytes = 128u << 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

ContainerSpec::Tensor tensor_of(const SynthPlane& plane) {
  return {plane.name, plane.dtype, plane.shape};
}

ContainerSpec::Tensor expert_tensor(const SynthPlane& plane) {
  return {plane.name, plane.dtype, plane.shape, /*is_interleaved=*/true};
}

class ContainerSynthesis {
 public:
  explicit ContainerSynthesis(const SynthJob& job)
      : job_(job), dense_(dense_planes(job.plan, job.options.statistics.seed)) {
    for (const SynthBank& bank : job.plan.banks) {
      banks_.push_back(expert_planes(bank, job.options.statistics.seed));
    }
  }

  SynthReport run() {
    const auto start = Clock::now();
    ContainerWriter writer(job_.directory, spec(),
                           {.identity = job_.identity,
                            .start_over = job_.options.force,
                            .checkpoint_bytes = kCheckpointBytes,
                            .free = job_.options.free});
    const std::uint64_t total = weight_bytes(writer.layout());
    WriteMeter meter(job_.options.progress, writer.resumed_bytes(), total);
    writer.write_text("config.json", dump_json(config(), 1) + "\n");
    for (const TextFile& file : job_.text) writer.write_text(file.name, file.content);
    write_dense(writer, meter);
    write_experts(writer, meter);

    double write_seconds = 0;
    ScrubOptions verify{.n_threads = job_.n_threads,
                        .progress = [&](std::uint64_t done, std::uint64_t of) {
                          if (write_seconds == 0) write_seconds = seconds_since(start);
                          if (!job_.options.progress) return;
                          job_.options.progress({ConvertProgress::Stage::Verifying, done, of});
                        }};
    // Whatever family it is of must take it for a model.
    writer.finish(verify, [](const ModelSource& written) { describe_model(written); });
    if (write_seconds == 0) write_seconds = seconds_since(start);
    return {.bytes = total,
            .resumed_bytes = writer.resumed_bytes(),
            .n_tensors = dense_.size(),
            .n_experts = writer.layout().n_records(),
            .fingerprint = writer.layout().fingerprint,
            .write_seconds = write_seconds,
            .verify_seconds = seconds_since(start) - write_seconds};
  }

 private:
  ContainerSpec spec() const {
    ContainerSpec spec;
    spec.source_layout = layout_name(ModelSource::Layout::Mlx);
    spec.converted_by = job_.options.made_by;
    for (const SynthDense& dense : dense_) spec.tensors.push_back(tensor_of(dense.plane()));
    for (std::size_t b = 0; b < banks_.size(); ++b) {
      ContainerSpec::Bank& bank = spec.banks.emplace_back();
      bank.n_experts = job_.plan.banks[b].n_experts;
      for (const SynthExpertPlane& plane : banks_[b]) {
        bank.planes.push_back(expert_tensor(plane.plane()));
      }
    }
    return spec;
  }

  Json config() const {
    ModelSource source(job_.directory, ModelSource::Layout::Mlx);
    source.set_config(job_.plan.config, job_.directory);
    return container_config(source, /*has_fp8=*/false);
  }

  static std::uint64_t weight_bytes(const ContainerManifest& layout) {
    std::uint64_t bytes = 0;
    for (const ContainerTensor& tensor : layout.tensors) bytes += tensor.bytes;
    for (const ContainerBank& bank : layout.banks) {
      bytes += bank.record_bytes * static_cast<std::uint64_t>(bank.n_experts);
    }
    return bytes;
  }

  void write_dense(ContainerWriter& writer, WriteMeter& meter) const {
    ThreadPool pool(job_.n_threads);
    pool.parallel_for(std::ssize(dense_), 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto index = static_cast<std::size_t>(i);
        if (writer.has_tensor(index)) continue;
        writer.write_tensor(index, [&](std::uint64_t offset, std::span<std::byte> out) {
          dense_[index].fill(offset, out);
          meter.add(out.size());
        });
      }
    });
  }

  void write_experts(ContainerWriter& writer, WriteMeter& meter) const {
    std::uint64_t largest = 1;
    for (const ContainerBank& bank : writer.layout().banks) {
      largest = std::max(largest, bank.record_bytes);
    }
    ThreadPool pool(std::clamp(static_cast<int>(kMaxRecordBytes / largest), 1, job_.n_threads));
    std::vector<std::vector<std::byte>> records(static_cast<std::size_t>(pool.size()));
    std::atomic<bool> failed = false;
    for (std::size_t b = 0; b < banks_.size(); ++b) {
      const ContainerBank& layout = writer.layout().banks[b];
      const auto write = [&](std::int64_t begin, std::int64_t end, int worker) {
        std::vector<std::byte>& record = records[static_cast<std::size_t>(worker)];
        record.resize(layout.record_bytes);
        for (std::int64_t expert = begin; expert < end && !failed; ++expert) {
          if (writer.has_record(b, expert)) continue;
          for (std::size_t p = 0; p < layout.planes.size(); ++p) {
            const ContainerPlane& to = layout.planes[p];
            banks_[b][p].fill(static_cast<int>(expert),
                              std::span(record).subspan(to.offset, to.bytes));
            arrange_plane(record.data() + to.offset, to.shape[0], to.shape[1], dtype_size(to.dtype),
                          /*to_tiles=*/true);
          }
          writer.write_record(b, expert, record);
          meter.add(record.size());
        }
      };
      pool.parallel_for(layout.n_experts, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
        try {
          write(begin, end, worker);
        } catch (...) {  // the other threads need not go on
          failed = true;
          throw;
        }
      });
    }
  }

  const SynthJob& job_;
  std::vector<SynthDense> dense_;
  std::vector<std::vector<SynthExpertPlane>> banks_;
};

}  // namespace

SynthReport write_synth_container(const SynthJob& job) {
  return ContainerSynthesis(job).run();
}

}  // namespace moeflux
