"""What an upstream's failures and refusals mean, and when it is asked again."""
