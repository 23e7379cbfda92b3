// Every command of the program, one file each.
#pragma once

#include "cli/command_line.h"

namespace moeflux::cli {

void add_run_command(CommandLine& line);
void add_chat_command(CommandLine& line);
void add_serve_command(CommandLine& line);
void add_ps_command(CommandLine& line);
void add_info_command(CommandLine& line);
void add_pull_command(CommandLine& line);
void add_ls_command(CommandLine& line);
void add_show_command(CommandLine& line);
void add_rm_command(CommandLine& line);
void add_tokenize_command(CommandLine& line);
void add_template_command(CommandLine& line);
void add_verify_command(CommandLine& line);
void add_eval_command(CommandLine& line);
void add_convert_command(CommandLine& line);
void add_bench_command(CommandLine& line);
void add_check_command(CommandLine& line);
void add_synth_command(CommandLine& line);
void add_trace_command(CommandLine& line);
void add_store_command(CommandLine& line);
void add_doctor_command(CommandLine& line);
void add_plan_command(CommandLine& line);
void add_version_command(CommandLine& line);
// These write about the others; `line` must outlive its run.
void add_config_command(CommandLine& line);
void add_completion_command(CommandLine& line);
void add_man_page_command(CommandLine& line);

}  // namespace moeflux::cli
