package figures

import "strings"

// benchmark is a run of one benchmark and nothing else.
func benchmark(pattern, pkg, time string) command {
	return command{args: "test -count=1 -timeout=10m -run=^$ -bench=^" + pattern + "$ -benchtime=" + time + " " + pkg}
}

// test is a run of one test, whatever ran before.
func test(name, pkg string) command {
	return command{args: "test -count=1 -timeout=10m -v -run=^" + name + "$ " + pkg}
}

// oftenKilled has a test of killed servers kill as many as is promised.
func oftenKilled(c command) command {
	c.env = "DEEPWORK_CRASH_ROUNDS=100"
	return c
}

// fiveTimes has a benchmark run five times; its values are the medians.
func fiveTimes(c command) command {
	c.args = strings.Replace(c.args, "-count=1", "-count=5", 1)
	return c
}

// The commands that several figures are read from.
var (
	stdioSteps   = fiveTimes(benchmark("BenchmarkFinishedStepStdio", "./cmd/deepwork", "10x"))
	inMemory     = benchmark("BenchmarkTransitionInMemory", "./session/workflow", "2s")
	passivated   = benchmark("BenchmarkPassivatedSessions", "./session/workflow", "1000x")
	manyReviews  = benchmark("BenchmarkReviews", "./cmd/deepwork", "2x")
	poolOnly     = benchmark("BenchmarkPool", "./gate", "2x")
	syncCalls    = fiveTimes(benchmark("BenchmarkSyncCall", "./cmd/deepwork", "2s"))
	tenThousand  = benchmark("BenchmarkTenThousandWorkflows", "./transport", "3x")
	edited       = command{args: "load --edit --duration 60s --seed 1"}
	benched      = command{args: "load --bench --duration 20s --seed 1", runs: 5}
	twoServers   = command{args: "load --edit --servers 2 --lose 0.01 --duration 20s --seed 1"}
	idleOnes     = command{args: "load --idle 5000"}
	fiftyAtOnce  = test("TestFiftyAttemptsOnFourSlots", "./session/attempt")
	killedBoards = oftenKilled(test("TestKilledServersLoseNothing", "./session/attempt"))
)

const (
	oneCaller      = "BenchmarkFinishedStepStdio/callers=1"
	sixteenCallers = "BenchmarkFinishedStepStdio/callers=16"
	fewSessions    = "BenchmarkTransitionInMemory/sessions=10"
	manySessions   = "BenchmarkTransitionInMemory/sessions=100000"
)

// The parts of the program that figures are promised of.
const (
	engine  = "engine"
	quality = "quality gate"
	agents  = "many agents"
	dynamic = "dynamic tools"
	board   = "task board"
)

// parts are all of them, in the order of the table.
var parts = []string{engine, quality, agents, dynamic, board}

// syncCall is the figure of a sync call through the server by one way.
func syncCall(what, way string) figure {
	name := "BenchmarkSyncCall/" + way
	return figure{dynamic, what, "<=", 1, "", func(get getter) float64 {
		return get(name, "ns-through") / (2*get(name, "ns-direct") + 1e6)
	}, "{" + name + " ns-through /1000} µs; directly {" + name + " ns-direct /1000} µs", syncCalls, false}
}

// figures are all that are promised. A new one gets its row here, and its benchmark
// beside the code that it measures.
var figures = []figure{
	// The engine.
	{engine, "finished_step over stdio, durable, 1 caller: part of the time allowed, an echo and two writes", "<=", 1, "", one(oneCaller, "of-allowed(<=1)", 1),
		"step {" + oneCaller + " step-µs} µs; echo of the bare SDK {" + oneCaller + " echo-µs} µs, synced write of 4 KB {" + oneCaller + " write-µs} µs", stdioSteps, false},
	{engine, "the same, 16 callers on one connection: part of 1/(1/e + 1/w)", ">=", 0.6, "", one(sixteenCallers, "of-ideal(>=0.6)", 1),
		"step {" + sixteenCallers + " step-µs} µs; echo {" + sixteenCallers + " echo-µs} µs, write {" + sixteenCallers + " write-µs} µs, each by 16 at once", stdioSteps, false},
	{engine, "resident after that, 100 jobs loaded", "<", 64, "MB", func(get getter) float64 {
		return max(get(oneCaller, "server-MB(<64)"), get(sixteenCallers, "server-MB(<64)"))
	}, "", stdioSteps, false},
	{engine, "a step after 300 others by one after 10", "<=", 2, "", one("BenchmarkLateStep", "ratio(<=2)", 1),
		"step 10 {BenchmarkLateStep step10-µs} µs, step 300 {BenchmarkLateStep step300-µs} µs", benchmark("BenchmarkLateStep", "./cmd/deepwork", "3x"), false},
	{engine, "a transition in memory, 10 sessions", "<", 5, "µs", one(fewSessions, "ns/op", 1e-3), "{" + fewSessions + " B/op} B, {" + fewSessions + " allocs/op} allocations", inMemory, false},
	{engine, "a transition in memory, 100,000 sessions", "<", 5, "µs", one(manySessions, "ns/op", 1e-3), "{" + manySessions + " B/op} B, {" + manySessions + " allocs/op} allocations", inMemory, false},
	{engine, "its growth from 10 to 100,000 sessions (none is wanted; a quarter is noise)", "<=", 1.25, "", ratio(manySessions, "ns/op", fewSessions, "ns/op"),
		"{" + fewSessions + " ns/op} ns and {" + manySessions + " ns/op} ns", inMemory, false},
	{engine, "100,000 active sessions, all passivated: resident", "<", 100, "MB", one("BenchmarkPassivatedSessions", "MB-resident", 1),
		"{BenchmarkPassivatedSessions B/session} B a session", passivated, false},
	{engine, "waking one and get_step, without the read of its file", "<", 1, "ms", func(get getter) float64 {
		return (get("BenchmarkPassivatedSessions", "ns/op") - get("BenchmarkPassivatedSessions", "read-ns")) / 1e6
	}, "read of the bare file {BenchmarkPassivatedSessions read-ns /1000} µs", passivated, false},
	{engine, "get_step in a stack 1,000 deep by one of 1: growth of the call by that of the field stack", "<=", 1, "", func(get getter) float64 {
		deep, flat := "BenchmarkStackDepth/depth=1000", "BenchmarkStackDepth/depth=1"
		return get(deep, "ns/op") / get(flat, "ns/op") / (get(deep, "ns-of-it-stack-field") / get(flat, "ns-of-it-stack-field"))
	}, "call {BenchmarkStackDepth/depth=1 ns/op /1000} and {BenchmarkStackDepth/depth=1000 ns/op /1000} µs; field {BenchmarkStackDepth/depth=1 ns-of-it-stack-field /1000} and {BenchmarkStackDepth/depth=1000 ns-of-it-stack-field /1000} µs",
		benchmark("BenchmarkStackDepth", "./session/workflow", "500x"), false},
	{engine, "the session of a request_id among 20,000 session files, the first lookup of a server", "<=", 50, "ms", one("BenchmarkFindRequest/first", "ns/op", 1e-6),
		"the next {BenchmarkFindRequest/next ns/op /1000} µs", benchmark("BenchmarkFindRequest", "./session/store/local", "1x"), false},
	{engine, "start, finish and abort anywhere in a stack 1,000 deep", "", 0, "s", one("TestAStackAThousandDeep", "s", 1), "a test that passes", test("TestAStackAThousandDeep", "./session/workflow"), false},
	{engine, "10,000 jobs load", "<", 3, "s", one("BenchmarkOpen10000", "ns/op", 1e-9), "", benchmark("BenchmarkOpen10000", "./catalog", "3x"), false},
	{engine, "get_workflows with 1,000 jobs, the whole call", "<", 5, "ms", one("BenchmarkGetWorkflows", "ns/op", 1e-6), "", benchmark("BenchmarkGetWorkflows", "./transport", "1s"), false},
	{engine, "an edit of one of 1,000 jobs, until the next call has it; 10 ms of it the file is left alone", "", 0, "ms", one("BenchmarkEdit1000", "ns/op", 1e-6), "", benchmark("BenchmarkEdit1000", "./catalog", "50x"), false},
	{engine, "process start to the answer to initialize, 100 jobs of 25 steps", "<", 50, "ms", one("BenchmarkProcessStart", "ms(<50)", 1), "", benchmark("BenchmarkProcessStart", "./cmd/deepwork", "20x"), false},

	// The quality gate.
	{quality, "200 sessions ask for a review at once, 4 workers, a reviewer of 50 ms: by the ideal", "<=", 1.3, "", one("BenchmarkReviews", "of-ideal(<=1.3)", 1),
		"200/4 of the reviewer's own {BenchmarkReviews reviewer-ms} ms", manyReviews, false},
	{quality, "the same in the pool alone", "<=", 1.3, "", one("BenchmarkPool", "x-ideal", 1), "200/4 of the reviewer's own {BenchmarkPool ms-alone} ms", poolOnly, false},
	{quality, "reviewers that ran at once", "<=", 4, "", one("BenchmarkReviews", "at-once(<=4)", 1), "", manyReviews, false},
	{quality, "get_workflows meanwhile by its idle median", "<=", 3, "", one("BenchmarkReviews", "busy-list(<=3)", 1), "idle {BenchmarkReviews idle-list-µs} µs", manyReviews, false},
	{quality, "100 hanging reviews cancelled, until no process and no goroutine is left", "<=", 2, "s", one("TestFigure_CancellingAHundredHangingReviews", "gone-s", 1),
		"each ignores SIGTERM, and so does its child", test("TestFigure_CancellingAHundredHangingReviews", "./gate"), false},
	{quality, "building a review of 5 files of 1 MB by reading them", "<=", 3, "", one("BenchmarkBuild", "x-read", 1), "reading {BenchmarkBuild ms-read} ms", benchmark("BenchmarkBuild", "./gate", "300x"), false},

	// Many agents.
	{agents, "64 connections, stacks 8 deep, groups of 4, an editor saving: calls and files that are wrong", "<=", 0, "", one("load", "wrong", 1),
		"{load transitions} transitions acknowledged, {load checked} session files checked, {load saves} saves", edited, true},
	{agents, "growth of the server's memory after 20 s of 60", "<=", 1.1, "", ratio("load", "end-MB", "load", "settled-MB"), "{load settled-MB} MB, then {load end-MB} MB", edited, false},
	{agents, "throughput at 64 connections by 1/(1/e + 1/w)", ">=", 0.55, "", one("load", "of-ceiling", 1),
		"{load transitions/s} transitions a second; e {load echoes/s} echoes of the bare SDK, w {load writes/s} synced writes", benched, false},
	{agents, "p99 by p50 at 64 connections", "<=", 10, "", one("load", "p99/p50", 1), "", benched, false},
	{agents, "two servers on one folder, replies lost, an editor saving: calls and files that are wrong", "<=", 0, "", one("load", "wrong", 1),
		"{load transitions} transitions acknowledged, {load moves} moves between the servers", twoServers, true},
	{agents, "5,000 idle connections: each above the bare SDK's", "<", 40, "KB", one("load", "more-KB", 1), "{load idle-KB} KB with deepwork, {load bare-KB} KB with the bare SDK", idleOnes, false},

	// Workflows of other systems.
	syncCall("a sync call through the server, stdio, protocol 2025-11-25: part of twice a direct one and 1 ms", "stdio/sessions"),
	syncCall("the same, stdio, protocol 2026-07-28", "stdio/newest"),
	syncCall("the same, HTTP, protocol 2025-11-25", "http/sessions"),
	syncCall("the same, HTTP, protocol 2026-07-28", "http/newest"),
	{dynamic, "10,000 workflows become tools", "<", 2, "s", one("BenchmarkTenThousandWorkflows", "ns/op", 1e-9), "", tenThousand, false},
	{dynamic, "list_changed that a client gets of that", "<=", 1, "", one("BenchmarkTenThousandWorkflows", "list-changed", 1), "", tenThousand, false},
	{dynamic, "200 async runs at once on 10 slots: all end, never more than 10 at the source", "", 0, "s", one("TestFigure003_200RunsAtOnceWith10Slots", "s", 1), "a test that passes",
		test("TestFigure003_200RunsAtOnceWith10Slots", "./session/execution"), false},

	// The task board.
	{board, "list_tasks, 50 of 10,000 tasks with 30,000 attempts, by the bare query", "<=", 3, "", one("BenchmarkListTasks", "ratio", 1),
		"{BenchmarkListTasks µs/list} µs; bare {BenchmarkListTasks µs/bare} µs", benchmark("BenchmarkListTasks", "./session/store/local/sqlite", "300x"), false},
	{board, "50 attempts at once on 4 slots: all end, never more than 4, nothing locked, git whole", "", 0, "s", one("TestFiftyAttemptsOnFourSlots", "s", 1), "a test that passes", fiftyAtOnce, false},
	{board, "servers killed at 100 random moments: no commit, byte or task is lost", "", 0, "s", one("TestKilledServersLoseNothing", "s", 1), "a test that passes", killedBoards, false},
}
