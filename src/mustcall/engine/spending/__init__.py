"""What turns and runs cost, who pays, and when they must stop."""
