// moeflux doctor: looks at this machine, measures it, and says what could be better.
#include "engine/measure/doctor.h"

#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory_budget.h"
#include "cli/build_info.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "io/uring_reader.h"

namespace moeflux::cli {
namespace {

const char* reader_name(ReaderKind kind) {
  return kind == ReaderKind::Uring ? "io_uring" : "threads";
}

Json limit_json(std::uint64_t limit) {
  return limit == kNoLimit ? Json() : Json(limit);
}
Json text_json(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json cpu_json(const CpuDescription& cpu) {
  return {{"name", cpu.name},
          {"features", cpu.features},
          {"sockets", cpu.n_sockets},
          {"cores", cpu.n_cores},
          {"threads", cpu.n_threads},
          {"usable_threads", cpu.n_usable},
          {"quota", cpu.quota > 0 ? Json(cpu.quota) : Json()},
          {"memory_nodes", cpu.n_nodes},
          {"l3_bytes", cpu.l3_bytes},
          {"governor", text_json(cpu.governor)}};
}

Json pressure_json(const PressureLine& line) {
  return {{"avg10", line.avg10},
          {"avg60", line.avg60},
          {"avg300", line.avg300},
          {"total_us", line.total_us}};
}

Json memory_json(const MachineDescription& machine) {
  const MemoryLimits& memory = machine.memory;
  const CgroupMemory& group = memory.cgroup;
  Json cgroup;
  if (group.version != 0) {
    cgroup = {{"version", group.version},
              {"hard_limit", limit_json(group.hard_limit)},
              {"soft_limit", limit_json(group.soft_limit)},
              {"usage", group.usage},
              {"reclaimable", group.reclaimable},
              {"left", limit_json(group.left)},
              {"swap_limit", limit_json(group.swap_limit)},
              {"swap_usage", group.swap_usage}};
  }
  Json pressure;
  if (machine.pressure) {
    pressure = {{"some", pressure_json(machine.pressure->some)},
                {"full", pressure_json(machine.pressure->full)}};
  }
  return {{"total", memory.total},
          {"available", memory.available},
          {"usable", usable_memory(memory)},
          {"default_budget", default_ram_budget(memory)},
          {"swap_total", memory.swap_total},
          {"swap_free", memory.swap_free},
          {"cgroup", std::move(cgroup)},
          {"pressure", std::move(pressure)},
          {"huge_pages", text_json(machine.kernel.huge_pages)}};
}

Json storage_json(const StorageDescription& storage) {
  const DriveDescription& drive = storage.drive;
  return {{"file_system", text_json(storage.file_system)},
          {"free_bytes", storage.free_bytes},
          {"direct_io", storage.alignment.direct()},
          {"offset_alignment", storage.alignment.offset},
          {"memory_alignment", storage.alignment.memory},
          {"drive", text_json(drive.name)},
          {"model", text_json(drive.model)},
          {"rotational", drive.rotational ? Json(*drive.rotational) : Json()},
          {"link", text_json(drive.link)},
          {"best_link", text_json(drive.best_link)},
          {"max_request_bytes", drive.max_request_bytes}};
}

Json disk_json(const DiskSpeed& disk) {
  return {{"reader", reader_name(disk.reader)},
          {"in_flight", disk.depth},
          {"bytes_per_second", disk.speed.bytes_per_second()},
          {"records_per_second", disk.speed.records_per_second()},
          {"cpu_seconds_per_second",
           disk.speed.seconds > 0 ? disk.speed.cpu_seconds / disk.speed.seconds : 0}};
}

// Collects lines of "what  value" under headings.
class Page {
 public:
  explicit Page(bool color) : color_(color) {}
  void heading(const std::string& title) {
    text_ += fmt::format("\n{}\n", styled(title, Style::Bold, color_));
  }
  void line(const char* what, const std::string& value) {
    text_ += fmt::format("  {:<14}{}\n", what, value);
  }
  void raw(const std::string& text) { text_ += text; }
  std::string styled_text(const std::string& text, Style style) const {
    return styled(text, style, color_);
  }
  const std::string& text() const { return text_; }

 private:
  bool color_;
  std::string text_;
};

std::string limit_text(std::uint64_t limit) {
  return limit == kNoLimit ? "no limit" : format_bytes(limit);
}

void print_processor(const CpuDescription& cpu, Page& page) {
  page.heading("processor");
  page.line("name", cpu.name.empty() ? "unknown" : cpu.name);
  std::string cores =
      fmt::format("{} physical, {} logical, {} usable", cpu.n_cores, cpu.n_threads, cpu.n_usable);
  if (cpu.quota > 0) cores += fmt::format(", {:.1f} at a time by control group", cpu.quota);
  page.line("cores", cores);
  page.line("features", cpu.features);
  if (cpu.l3_bytes > 0) page.line("L3 cache", format_bytes(cpu.l3_bytes));
  if (cpu.n_nodes > 1) page.line("memory nodes", std::to_string(cpu.n_nodes));
  if (!cpu.governor.empty()) page.line("governor", cpu.governor);
}

void print_memory(const DoctorReport& report, Page& page) {
  const MachineDescription& machine = report.machine;
  const MemoryLimits& memory = machine.memory;
  const CgroupMemory& group = memory.cgroup;
  page.heading("memory");
  page.line("total", fmt::format("{}, {} available", format_bytes(memory.total),
                                 format_bytes(memory.available)));
  page.line("swap", memory.swap_total == 0
                        ? "none"
                        : fmt::format("{}, {} free", format_bytes(memory.swap_total),
                                      format_bytes(memory.swap_free)));
  std::string group_text = "none";
  if (group.version != 0) {
    group_text = fmt::format("version {}, {}", group.version, limit_text(group.limit()));
    if (group.left != kNoLimit) group_text += fmt::format(", {} left", format_bytes(group.left));
  }
  page.line("control group", group_text);
  page.line("default --ram", format_bytes(default_ram_budget(memory)));
  page.line("pressure",
            machine.pressure
                ? fmt::format("some {:.2f} %, full {:.2f} % of the last 10 s",
                              machine.pressure->some.avg10, machine.pressure->full.avg10)
                : "not measured by this kernel");
  page.line("huge pages",
            machine.kernel.huge_pages.empty() ? "unknown" : machine.kernel.huge_pages);
  page.line("may be locked", limit_text(machine.limits.locked_memory));
  for (const MemorySpeed& speed : report.memory) {
    page.line(&speed == report.memory.data() ? "read speed" : "",
              fmt::format("{:>7.1f} GB/s with {} thread{}", speed.bytes_per_second / 1e9,
                          speed.n_threads, speed.n_threads == 1 ? "" : "s"));
  }
}

void print_storage(const StorageDescription& storage, Page& page) {
  const DriveDescription& drive = storage.drive;
  page.line(
      "file system",
      fmt::format("{}, {} free", storage.file_system.empty() ? "unknown" : storage.file_system,
                  format_bytes(storage.free_bytes)));
  std::string name = drive.name.empty() ? "not a local one" : drive.name;
  if (!drive.model.empty()) name += ", " + drive.model;
  if (drive.rotational) name += *drive.rotational ? ", hard disk" : ", solid state";
  if (!drive.link.empty()) name += ", " + drive.link;
  page.line("drive", name);
  page.line("direct I/O", storage.alignment.direct()
                              ? fmt::format("offsets of {}, memory of {} bytes",
                                            storage.alignment.offset, storage.alignment.memory)
                              : "no");
}

void print_speeds(const DoctorReport& report, Page& page) {
  if (report.disk.empty()) return;
  page.line("read in",
            fmt::format("records of {} at random places of {}", format_bytes(report.record_bytes),
                        report.test_file_bytes > 0
                            ? fmt::format("a test file of {}", format_bytes(report.test_file_bytes))
                            : "the model's own files"));
  std::vector<int> depths;
  for (const DiskSpeed& each : report.disk) {
    if (std::find(depths.begin(), depths.end(), each.depth) == depths.end()) {
      depths.push_back(each.depth);
    }
  }
  page.raw(fmt::format("\n  {:>9}{:>12}{:>12}\n", "in flight", "io_uring", "threads"));
  const auto cell = [&](ReaderKind kind, int depth) -> std::string {
    for (const DiskSpeed& each : report.disk) {
      if (each.reader == kind && each.depth == depth) {
        return fmt::format("{:.2f} GB/s", each.speed.bytes_per_second() / 1e9);
      }
    }
    return "-";
  };
  for (const int depth : depths) {
    page.raw(fmt::format("  {:>9}{:>12}{:>12}\n", depth, cell(ReaderKind::Uring, depth),
                         cell(ReaderKind::Pool, depth)));
  }
}

void print_findings(const DoctorReport& report, Page& page) {
  page.heading("findings");
  if (report.findings.empty()) page.raw("  nothing to improve was found\n");
  for (const Finding& finding : report.findings) {
    const Style style = finding.severity == Severity::Error     ? Style::Red
                        : finding.severity == Severity::Warning ? Style::Yellow
                                                                : Style::Dim;
    const std::string name(severity_name(finding.severity));
    page.raw(fmt::format("  {}{}{}\n", page.styled_text(name, style),
                         std::string(9 - name.size(), ' '), finding.what));
    if (!finding.advice.empty()) page.raw(fmt::format("           => {}\n", finding.advice));
  }
}

Json to_json(const DoctorReport& report) {
  const MachineDescription& machine = report.machine;
  Json model;
  if (report.model) {
    model = {{"name", report.model->name},
             {"family", report.model->family},
             {"layout", report.model->layout},
             {"expert_bytes", report.model->expert_bytes},
             {"expert_is_one_record", report.model->expert_is_one_record},
             {"files", report.model->files.size()}};
  }
  Json storage = Json::array(), disk = Json::array(), memory = Json::array(),
       findings = Json::array();
  for (const StorageDescription& each : report.storage) storage.push_back(storage_json(each));
  for (const DiskSpeed& each : report.disk) disk.push_back(disk_json(each));
  for (const MemorySpeed& each : report.memory) {
    memory.push_back({{"threads", each.n_threads}, {"bytes_per_second", each.bytes_per_second}});
  }
  for (const Finding& each : report.findings) {
    findings.push_back({{"severity", severity_name(each.severity)},
                        {"id", each.id},
                        {"what", each.what},
                        {"advice", text_json(each.advice)}});
  }
  return {{"version", program_version()},
          {"commit", text_json(program_commit())},
          {"build_type", build_type()},
          {"compiler", compiler()},
          {"kernel",
           {{"release", machine.kernel.release},
            {"architecture", machine.kernel.architecture},
            {"seccomp", machine.kernel.seccomp}}},
          {"cpu", cpu_json(machine.cpu)},
          {"memory", memory_json(machine)},
          {"limits",
           {{"open_files", limit_json(machine.limits.open_files)},
            {"locked_memory", limit_json(machine.limits.locked_memory)},
            {"address_space", limit_json(machine.limits.address_space)}}},
          {"io_uring",
           {{"usable", report.uring == UringStatus::Used},
            {"status", describe_uring(report.uring, report.uring_error)},
            {"disabled_sysctl",
             machine.kernel.uring_disabled ? Json(*machine.kernel.uring_disabled) : Json()}}},
          {"model", std::move(model)},
          {"storage", std::move(storage)},
          {"record_bytes", report.record_bytes},
          {"test_file_bytes", report.test_file_bytes},
          {"disk_reads", std::move(disk)},
          {"memory_reads", std::move(memory)},
          {"findings", std::move(findings)}};
}

std::string to_text(const DoctorReport& report, bool color) {
  Page page(color);
  page.raw(version_line() + "\n");
  print_processor(report.machine.cpu, page);
  print_memory(report, page);
  page.heading("kernel");
  page.line("release", fmt::format("{} {}", report.machine.kernel.release,
                                   report.machine.kernel.architecture));
  page.line("io_uring", report.uring == UringStatus::Used ? "usable" : "not usable, see below");
  page.line("open files", report.machine.limits.open_files == kNoLimit
                              ? "no limit"
                              : std::to_string(report.machine.limits.open_files));
  if (report.model) {
    page.heading("model");
    page.line("name", fmt::format("{}, {} ({})", report.model->name, report.model->family,
                                  report.model->layout));
    page.line("experts",
              fmt::format("{} each, in {} file{}", format_bytes(report.model->expert_bytes),
                          report.model->files.size(), report.model->files.size() == 1 ? "" : "s"));
  }
  page.heading("storage");
  for (const StorageDescription& storage : report.storage) print_storage(storage, page);
  print_speeds(report, page);
  print_findings(report, page);
  return page.text();
}

struct DoctorArguments {
  GeneralOptions general;
  std::optional<std::string> record;
  bool json = false;
  bool quick = false;
};

int run(const DoctorArguments& options, const std::vector<std::string>& arguments) {
  DoctorOptions doctor;
  if (!arguments.empty()) doctor.path = arguments[0];
  doctor.quick = options.quick;
  if (options.record) {
    const std::uint64_t bytes = parse_size(*options.record, "--record");
    if (bytes > std::uint64_t{1} << 30) throw UsageError("--record: at most 1G");
    doctor.record_bytes = bytes;
  }
  DoctorReport report;
  {
    const InterruptGuard guard;
    ProgressBar bar("measuring", options.general.show_progress());
    doctor.progress = [&](int step, int n_steps, const std::string& what) {
      throw_if_interrupted();
      bar.update(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(n_steps), what);
    };
    report = examine(doctor);
  }
  write_stdout(options.json ? dump_json(to_json(report), 2) + "\n"
                            : to_text(report, options.general.color_on_stdout()));
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::Error) return kFailure;
  }
  return kSuccess;
}

}  // namespace

void add_doctor_command(CommandLine& line) {
  const auto options = std::make_shared<DoctorArguments>();
  Command& command =
      line.add("doctor", "Examine and measure this machine, and say what could be better.");
  command.arguments("[MODEL|DIRECTORY]", 1);
  command.group("Options")
      .flag("--quick", options->quick, "measure for two seconds instead of twelve")
      .option("--record", options->record, "SIZE",
              "size of a read when no model is given (default: 2M)");
  command.group("Output").flag("--json", options->json, "print JSON");
  add_general_options(command, options->general);
  command.example("doctor")
      .example("doctor /data/qwen")
      .example("doctor --json --quick /data | jq .findings");
  command.note(
      "With a model its own files are read; else a test file of at most 1 GiB is written in");
  command.note(
      "DIRECTORY (default: the current one) and removed. The report names no host, user or");
  command.note(
      "path, so that it can be pasted into a bug report. The exit code is 1 when something");
  command.note("does not work at all.");
  command.run(options, run);
}

}  // namespace moeflux::cli
