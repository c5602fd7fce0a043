package transport

import "testing"

func BenchmarkZZ(b *testing.B) {
	s, _ := project(b, nil)
	cs := client(b, s)
	callTool(b, cs, "start_workflow", `{"goal":"g","job_name":"trip","workflow_name":"dream"}`)
	b.ReportAllocs()
	for b.Loop() {
		callTool(b, cs, "get_step", `{}`)
	}
}
