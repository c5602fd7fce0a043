package tool

// SeeExecution is the Recheck of tools that start a workflow of another system.
const SeeExecution = "see whether the workflow was started: call workflow_status with its execution_id if you were told one, else look at the system it runs in"

// howToFindOut returns how to find out what a call of a tool did. Tools that are not
// registered are workflows of other systems.
func (s *Set) howToFindOut(tool string) string {
	if t, registered := s.tools[tool]; registered {
		return t.Recheck
	}
	return SeeExecution
}

// again ends a sentence that says what became of a call.
func (s *Set) again(tool string) string {
	if s.tools[tool].Hints.ReadOnly {
		return "it only reads, so call " + tool + " again."
	}
	return "before you call " + tool + " again, " + s.howToFindOut(tool) + "."
}
