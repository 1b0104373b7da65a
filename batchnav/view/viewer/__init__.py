"""The interactive viewer: episodes in the browser, agents' trajectories, and an agent driven from the keyboard."""
