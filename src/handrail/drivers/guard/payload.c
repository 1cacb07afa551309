/* The command from clone to exec: its own session, no privileges, its limits. */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATH_ROOM = 8192 };

static const char default_path[] = "/usr/local/bin:/usr/bin:/bin";

/* The worse of two errnos: EPERM counts least, because a process without privileges is refused when it drops them. */
static int worse(int error, int result)
{
	return result >= 0 || (error && errno == EPERM) ? error : errno;
}

int forget_privileges(void)
{
	int error = worse(0, prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));

	for (int there, capability = 0; (there = prctl(PR_CAPBSET_READ, capability)) >= 0; capability++)
		if (there)
			error = worse(error, prctl(PR_CAPBSET_DROP, capability));
	error = worse(error, prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE));
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? EINVAL : error;
}

int drop_capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};

	return syscall(SYS_capset, &header, none) < 0 ? errno : 0;
}

int set_limit(int resource, uint64_t value)
{
	struct rlimit limit;

	if (value == NO_LIMIT)
		return 0;
	if (getrlimit(resource, &limit) < 0)
		return errno;
	if (value < limit.rlim_max) {
		limit.rlim_max = value + (resource == RLIMIT_CPU);      /* SIGXCPU first, then SIGKILL */
		limit.rlim_cur = value;
	} else {
		limit.rlim_cur = limit.rlim_max;
	}
	return setrlimit(resource, &limit) < 0 ? errno : 0;
}

static int set_limits(void)
{
	int error = set_limit(RLIMIT_CORE, 0);

	if (!error)
		error = set_limit(RLIMIT_NOFILE, settings.limits[LIMIT_OPEN_FILES]);
	if (!error)
		error = set_limit(RLIMIT_FSIZE, settings.limits[LIMIT_FILE_SIZE]);
	if (!error)
		error = set_limit(RLIMIT_CPU, settings.limits[LIMIT_CPU]);
	if (!error)
		error = set_limit(RLIMIT_DATA, settings.limits[LIMIT_MEMORY]);
	if (!error && settings.jail)
		error = set_limit(RLIMIT_NPROC, settings.limits[LIMIT_PROCESSES]);
	return error;
}

static const char *path_of(char **env)
{
	for (; *env; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	return default_path;
}

/* Return the last errno that says more than "not found". */
static int run(struct plan *plan)
{
	static char path[PATH_ROOM];
	const char *word = plan->argv[0], *at = path_of(plan->env), *end;
	int error = ENOENT;

	if (strchr(word, '/') || !*word) {
		execve(word, plan->argv, plan->env);
		return errno;
	}
	for (; at; at = *end ? end + 1 : NULL) {
		size_t size;

		end = strchrnul(at, ':');
		size = (size_t)(end - at);
		if (size + strlen(word) + 2 > sizeof path)
			continue;
		memcpy(path, at, size);
		path[size] = '/';
		strcpy(path + size + (size > 0), word);
		if (access(path, F_OK) == 0)            /* a tenth of what it takes to try and run what is not there */
			execve(path, plan->argv, plan->env);
		if (errno != ENOENT && errno != ENOTDIR && (errno != EACCES || error == ENOENT))
			error = errno;
		if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
			break;
	}
	return error;
}

static int refuse(struct plan *plan, int where, int error)
{
	plan->where = where;
	plan->error = error;
	return 127;
}

int payload(void *given)
{
	struct plan *plan = given;
	struct sigaction plain = {.sa_handler = SIG_DFL};
	int error;

	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);       /* a command dies with its supervisor, which has only one thread */
	if (dup2(plan->input, 0) < 0 || dup2(plan->output[0], 1) < 0 || dup2(plan->output[1], 2) < 0)
		return refuse(plan, FAILED_START, errno);
	if (plan->script == SCRIPT_FD)
		fcntl(SCRIPT_FD, F_SETFD, 0);
	else if (plan->script >= 0 && dup2(plan->script, SCRIPT_FD) < 0)
		return refuse(plan, FAILED_START, errno);
	sigaction(SIGPIPE, &plain, NULL);
	sigaction(SIGXFSZ, &plain, NULL);
	sigprocmask(SIG_SETMASK, &while_waiting, NULL);
	error = settings.keeps_privileges ? 0 : drop_capabilities();
	if (error)
		return refuse(plan, FAILED_START, error);
	if (chdir(plan->cwd) < 0)
		return refuse(plan, FAILED_CWD, errno);
	error = set_limits();
	if (error)
		return refuse(plan, FAILED_START, error);
	if (settings.jail && install_filter() < 0)
		return refuse(plan, FAILED_START, errno);
	return refuse(plan, FAILED_EXEC, run(plan));
}
