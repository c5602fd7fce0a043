package transport

// addWorkflowTools registers the set "workflows": seed 000's four tools, and
// the two that agents need who lost their place or must go back.
func (s *Server) addWorkflowTools() {
	addGetWorkflows(s)
	addStartWorkflow(s)
	addFinishedStep(s)
	addAbortWorkflow(s)
	addGetStep(s)
	addGoToStep(s)
}
